"""Multiplies every matrix of a batch by one weight, instead of by as many copies of it.

    matmul(x, broadcast_to(w, (n, k, m)))  ->  matmul(x, w)

PyTorch writes a linear layer like this if its input is not contiguous. Folded, the copies would be
constants: one copy of the weight per matrix.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import Rewriter, bound_call, rewrite_calls, static_shape


def share_weights() -> tvm.transform.Pass:
    """Return the pass."""
    return rewrite_calls("ShareWeights", {"relax.matmul": _matmul})


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = (static_shape(arg) for arg in call.args)
    if not left or not right or len(right) < 3 or left[:-2] != right[:-2]:
        return None
    source = _source(rewriter, call.args[1], right)
    count = prod(static_shape(source) or ())
    if count == prod(right) and not isinstance(source, GenericConst):
        return None  # nothing was repeated: a batch of one is an ordinary product
    if count != prod(right[-2:]):
        return None
    weight = rewriter.emit(relax.op.reshape(source, right[-2:]))
    return relax.op.matmul(call.args[0], weight, call.attrs.out_dtype)


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
