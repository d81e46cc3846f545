"""Moves reshapes behind elementwise operators, so that these fuse into what computed their input.

    unary(reshape(x))   -> reshape(unary(x))
    reshape(reshape(x)) -> reshape(x), or x itself where its shape is the one asked for

Operator fusion ends a matmul's epilogue at a reshape; exporters put one before every activation.
"""

from __future__ import annotations

import tvm
from tvm import relax

from tvmscope.compiler.passes.rewrite import Rewriter, rewrite_calls, static_shape

UNARY = tuple(
    f"relax.{name}"
    for name in ("nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "sigmoid", "tanh", "clip", "erf")
)


def _source(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """What `value` is a reshape of."""
    bound = rewriter.lookup_binding(value) if isinstance(value, relax.Var) else value
    if isinstance(bound, relax.Call) and isinstance(bound.op, tvm.ir.Op):
        return bound.args[0] if bound.op.name == "relax.reshape" else None
    return None


def _sink(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    source, shape = _source(rewriter, call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    moved = relax.Call(call.op, [source, *call.args[1:]], call.attrs)
    return relax.op.reshape(rewriter.builder_.emit(moved), shape)


def _merge(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    source, shape = _source(rewriter, call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    return source if static_shape(source) == shape else relax.op.reshape(source, shape)


def sink_reshapes() -> tvm.transform.Pass:
    """The pass."""
    return rewrite_calls("SinkReshapes", dict.fromkeys(UNARY, _sink) | {"relax.reshape": _merge})
