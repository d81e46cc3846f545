"""Moves reshapes after elementwise operators, so that these fuse into their input's kernel.

    unary(reshape(x))   -> reshape(unary(x))
    reshape(x) * reshape(y) -> reshape(x * y), and sums, if x and y have one shape or y is a number
    reshape(reshape(x)) -> reshape(x), or x itself if it has the requested shape
    broadcast_to(x)     -> x if it already has that shape
    permute(permute(x)) -> one permute, or x itself

Operator fusion ends a matmul's epilogue at a reshape; exporters put one before every activation.
"""

from __future__ import annotations

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import (
    Rewriter,
    bound_call,
    is_scalar,
    rewrite_calls,
    static_shape,
)

UNARY = tuple(
    f"relax.{name}"
    for name in ("nn.relu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "sigmoid", "tanh", "clip", "erf")
)


def _source(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the value that was reshaped to `value`."""
    call = bound_call(rewriter, value, "reshape")
    return None if call is None else call.args[0]


def _sink(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    source, shape = _source(rewriter, call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    moved = relax.Call(call.op, [source, *call.args[1:]], call.attrs)
    return relax.op.reshape(rewriter.emit(moved), shape)


def _sink_both(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call)
    left, right = (arg if is_scalar(arg) else _source(rewriter, arg) for arg in call.args)
    if left is None or right is None or shape is None:
        return None
    tensors = [(a, b) for a, b in zip((left, right), call.args, strict=True) if not is_scalar(b)]
    if any(static_shape(arg) != shape for _, arg in tensors):
        return None  # it is broadcast
    own = {static_shape(source) for source, _ in tensors}
    if len(own) != 1 or None in own:
        return None
    return relax.op.reshape(rewriter.emit(relax.Call(call.op, [left, right], call.attrs)), shape)


def _merge(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    source, shape = _source(rewriter, call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    return source if static_shape(source) == shape else relax.op.reshape(source, shape)


def _broadcast(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call)
    return call.args[0] if shape is not None and static_shape(call.args[0]) == shape else None


def _permute(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    before = bound_call(rewriter, call.args[0], "permute_dims")
    if before is None or before.attrs.axes is None or call.attrs.axes is None:
        return None
    axes = [int(before.attrs.axes[int(a)]) for a in call.attrs.axes]
    source = before.args[0]
    return source if axes == sorted(axes) else relax.op.permute_dims(source, axes)


HANDLERS = dict.fromkeys(UNARY, _sink) | {
    "relax.add": _sink_both,
    "relax.multiply": _sink_both,
    "relax.reshape": _merge,
    "relax.broadcast_to": _broadcast,
    "relax.permute_dims": _permute,
}


def sink_reshapes() -> tvm.transform.Pass:
    """Return the pass; aliases of a value are replaced by the value afterwards."""
    rewrite = rewrite_calls("SinkReshapes", HANDLERS)
    return tvm.transform.Sequential([rewrite, relax.transform.CanonicalizeBindings()])
