"""Keeps a half-precision model's values in half precision between its kernels.

TVM's mixed precision leaves islands of float32 around layer norms and residual sums. Kernels still
sum in float32; the values stored between them take half the memory if they stay narrow.
"""

from __future__ import annotations

import math
from functools import partial

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import Handler, Rewriter, bound_call, is_scalar, rewrite_calls
from tvmscope.compiler.units.graph import constant, dtype_of, name_of, scalar

MOVES = ("reshape", "permute_dims", "expand_dims", "squeeze", "take")
UNARY = ("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.leakyrelu", "clip", "nn.max_pool2d",
         "image.resize2d", "strided_slice")  # fmt: skip
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def narrow(dtype: str) -> tvm.transform.Pass:
    """Return the pass for a model in `dtype`."""
    handlers: dict[str, Handler] = {"relax.astype": partial(_cast, dtype)}
    handlers |= {f"relax.{name}": partial(_first, dtype) for name in (*MOVES, *UNARY)}
    handlers |= {f"relax.{name}": partial(_binary, dtype) for name in BINARY}
    handlers["relax.concat"] = partial(_concat, dtype)
    handlers["relax.nn.layer_norm"] = partial(_norm, dtype)
    return rewrite_calls("Narrow", handlers)


def _narrow(rewriter: Rewriter, value: relax.Expr, dtype: str) -> relax.Expr | None:
    """Return the narrow value that was cast to `value`."""
    call = bound_call(rewriter, value, "astype")
    if call is None or dtype_of(value) != "float32" or dtype_of(call.args[0]) != dtype:
        return None
    return call.args[0]


def _wide(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    return relax.op.astype(rewriter.emit(value), "float32")


def _cast(dtype: str, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    return _narrow(rewriter, call.args[0], dtype) if dtype_of(call) == dtype else None


def _first(dtype: str, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    value = _narrow(rewriter, call.args[0], dtype)
    if value is None or dtype_of(call) != "float32":
        return None
    return _wide(rewriter, relax.Call(call.op, [value, *call.args[1:]], call.attrs))


def _binary(dtype: str, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    if dtype_of(call) != "float32":
        return None
    values = [_narrow(rewriter, a, dtype) for a in call.args]
    if all(v is None for v in values):
        return None
    pairs = zip(values, call.args, strict=True)
    args = [_as_constant(call, a, dtype) if v is None else v for v, a in pairs]
    known = [a for a in args if a is not None]
    if len(known) < len(args):
        return None
    return _wide(rewriter, relax.Call(call.op, known, call.attrs))


def _concat(dtype: str, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
    values = [v for field in fields if (v := _narrow(rewriter, field, dtype)) is not None]
    if not values or len(values) < len(fields):
        return None
    return _wide(rewriter, relax.op.concat(values, call.attrs.axis))


def _as_constant(call: relax.Call, value: relax.Expr, dtype: str) -> relax.Expr | None:
    """Return the call's constant operand in `dtype`; None if it would become infinite there.

    Where it only keeps infinities away, it becomes the largest number of `dtype`.
    """
    array = constant(value)
    if array is None:
        return None
    limit = _LARGEST[dtype]
    number = scalar(value) if is_scalar(value) else None
    if number is not None and limit < abs(number) < math.inf:
        if not _limits_nothing(call, number):
            return None
        value = relax.const(math.copysign(limit, number), "float32")
    return relax.op.astype(value, dtype)


def _limits_nothing(call: relax.Call, beyond: float) -> bool:
    """Whether a maximum or minimum with a number beyond the narrow ones changes none of them.

    Clips with one limit have such a number as the other, or an infinity.
    """
    name = name_of(call)
    return (name == "maximum" and beyond < 0) or (name == "minimum" and beyond > 0)


def _norm(dtype: str, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    if dtype_of(call) != "float32" or len(call.attrs.axes) != 1:
        return None  # over several axes TVM's own kernel computes it, which refuses bfloat16
    value = _narrow(rewriter, call.args[0], dtype)
    if value is None:
        value = rewriter.emit(relax.op.astype(call.args[0], dtype))
    rest = [rewriter.emit(relax.op.astype(a, dtype)) for a in call.args[1:]]
    return _wide(rewriter, relax.Call(call.op, [value, *rest], call.attrs))
