"""Replaces softmax and layer norm over the last axis by the row kernels.

softmax(x), log_softmax(x)               -> one kernel
where(every x of the row is -inf, 0, softmax(x)) -> one kernel; PyTorch's attention is this
layer_norm(x, gain, bias)                -> one kernel
"""

from __future__ import annotations

from functools import partial

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import (
    OUT_ELEMENTWISE_FUSABLE,
    Compute,
    Rewriter,
    bound_call,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.kernels import norms


def row_kernels() -> tvm.transform.Pass:
    """Return the pass; guarded softmaxes go first, while their parts are still Relax operators."""
    guarded = rewrite_calls("GuardedSoftmax", {"relax.where": _guarded})
    others = {
        "relax.nn.softmax": _softmax,
        "relax.nn.log_softmax": _log_softmax,
        "relax.nn.layer_norm": _layer_norm,
    }
    return tvm.transform.Sequential([guarded, rewrite_calls("RowKernels", others)])


def _emit(rewriter: Rewriter, compute: Compute, name: str, *args: relax.Expr) -> relax.Expr:
    return rewriter.builder_.call_te(
        compute,
        *args,
        primfunc_name_hint=name,
        # TVM's analysis does not see that elementwise operators may follow its several stages.
        primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
    )


def _is_rows(value: relax.Expr) -> bool:
    shape = static_shape(value)
    return shape is not None and len(shape) > 1 and str(value.ty.dtype) == "float32"


def _softmax(
    rewriter: Rewriter, call: relax.Call, *, empty_is_zero: bool = False
) -> relax.Expr | None:
    if not _is_over_rows(call):
        return None
    compute = partial(norms.softmax, empty_is_zero=empty_is_zero)
    return _emit(rewriter, compute, "softmax", call.args[0])


def _log_softmax(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    if not _is_over_rows(call):
        return None
    return _emit(rewriter, norms.log_softmax, "log_softmax", call.args[0])


def _is_over_rows(call: relax.Call) -> bool:
    """Whether a softmax is over the last axis."""
    axes = (-1, len(static_shape(call.args[0]) or ()) - 1)
    return _is_rows(call.args[0]) and int(call.attrs.axis) in axes


def _layer_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    data, gain, bias = call.args
    axes = [int(a) % len(static_shape(data) or (1,)) for a in call.attrs.axes]
    if not _is_rows(data) or axes != [len(static_shape(data) or ()) - 1]:
        return None
    if not (call.attrs.center and call.attrs.scale):
        return None
    compute = partial(norms.layer_norm, epsilon=float(call.attrs.epsilon))
    return _emit(rewriter, compute, "layer_norm", data, gain, bias)


def _guarded(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    softmax = guarded_softmax(rewriter, call)
    return None if softmax is None else _softmax(rewriter, softmax, empty_is_zero=True)


def guarded_softmax(rewriter: Rewriter, call: relax.Call) -> relax.Call | None:
    """Return the softmax inside where(not any(x != -inf), 0, softmax(x)).

    The graph writes `any` as a maximum of int8.
    """
    empty, zero, usual = call.args
    softmax = bound_call(rewriter, usual, "nn.softmax")
    test = _path(rewriter, empty, "logical_not", "max", "logical_not", "equal")
    if softmax is None or test is None or not _is_filled_with(zero, 0.0):
        return None
    largest, equal = test[1], test[3]
    data = softmax.args[0]
    last = len(static_shape(data) or ()) - 1
    if [int(a) % (last + 1) for a in largest.attrs.axis or ()] != [last]:
        return None
    if not equal.args[0].same_as(data) or not _is_filled_with(equal.args[1], -np.inf):
        return None
    return softmax if static_shape(call) == static_shape(usual) else None


def _path(rewriter: Rewriter, value: relax.Expr, *names: str) -> list[relax.Call] | None:
    """Return the calls of these operators, each the first argument of the previous; skip casts."""
    calls: list[relax.Call] = []
    while len(calls) < len(names):
        if (call := bound_call(rewriter, value, names[len(calls)])) is not None:
            calls.append(call)
        elif (call := bound_call(rewriter, value, "astype")) is None:
            return None
        value = call.args[0]
    return calls


def _is_filled_with(value: relax.Expr, number: float) -> bool:
    if isinstance(value, tvm.tirx.FloatImm):
        return float(value.value) == number
    return isinstance(value, GenericConst) and bool(np.all(value.value.numpy() == number))
