"""Multiplies every matrix of a batch by one weight, instead of by as many copies of it.

    matmul(x, broadcast_to(w, (n, k, m)))      ->  matmul(x, w)
    matmul(x, reshape(transpose(w), (1, k, m)))  ->  matmul(x, transpose(w))

PyTorch writes a linear layer like this if its input is not contiguous. Folded, the copies would be
constants: one copy of the weight per matrix. With a batch of one there are no copies, but only a
weight of two axes is packed at compile time.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import (
    Rewriter,
    bound_call,
    operator_name,
    rewrite_calls,
    static_shape,
)

_MOVES = ("relax.permute_dims", "relax.reshape", "relax.broadcast_to")


def share_weights() -> tvm.transform.Pass:
    """Return the pass."""
    return rewrite_calls("ShareWeights", {"relax.matmul": _matmul})


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = (static_shape(arg) for arg in call.args)
    if not left or not right or len(right) < 3 or left[:-2] != right[:-2]:
        return None
    source = _source(rewriter, call.args[1], right)
    if prod(static_shape(source) or ()) != prod(right[-2:]):
        return None
    if prod(right[:-2]) == 1 and not _is_constant(rewriter, source):
        return None  # a computed matrix is no weight
    weight = rewriter.emit(relax.op.reshape(source, right[-2:]))
    return relax.op.matmul(call.args[0], weight, call.attrs.out_dtype)


def _is_constant(rewriter: Rewriter, value: relax.Expr) -> bool:
    """Whether a value is a constant, or one that was moved."""
    bound: relax.Expr | None = value
    while isinstance(bound, relax.Var):
        bound = rewriter.lookup_binding(bound)
        if isinstance(bound, relax.Call) and operator_name(bound) in _MOVES:
            bound = bound.args[0]
    return isinstance(bound, GenericConst)


def _source(rewriter: Rewriter, value: relax.Expr, shape: tuple[int, ...]) -> relax.Expr:
    """Return the value that was repeated along the leading axes to give `value`, or `value`; the
    leading axes may be split and joined in between."""
    while True:
        call = bound_call(rewriter, value, "reshape")
        call = bound_call(rewriter, value, "broadcast_to") if call is None else call
        before = static_shape(call.args[0]) if call is not None else None
        if call is None or before is None or before[-2:] != shape[-2:]:
            return value
        repeats = prod(before) != prod(static_shape(value) or ())
        value = call.args[0]
        if repeats:
            return value
