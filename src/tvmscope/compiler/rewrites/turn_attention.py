"""Turns attention that is written with the values on the left into the usual order.

    v @ transpose(softmax(s))  ->  transpose(softmax(s) @ transpose(v))

Attention over the pixels of an image is written like this, with the channels before the pixels
(autoencoders of diffusion models, EfficientViT). Attention is found in the usual order, and the
transpositions meet others, which bring the channels last or first again.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import Rewriter, bound_call, rewrite_calls, static_shape

_MOVES = ("reshape", "astype", "broadcast_to")


def turn_attention() -> tvm.transform.Pass:
    """Return the pass."""
    return rewrite_calls("TurnAttention", {"relax.matmul": _matmul})


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    values, right = (static_shape(arg) for arg in call.args)
    weights = _turned(rewriter, call.args[1])
    if not values or not right or weights is None or len(values) != len(right):
        return None
    shape = (*right[:-2], right[-1], right[-2])
    if static_shape(weights) != shape:
        weights = rewriter.emit(relax.op.reshape(weights, shape))
    swapped = [*range(len(right) - 2), len(right) - 1, len(right) - 2]
    usual = rewriter.emit(relax.op.permute_dims(call.args[0], swapped))
    product = relax.op.matmul(weights, usual, call.attrs.out_dtype)
    return relax.op.permute_dims(rewriter.emit(product), swapped)


def _turned(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the weights of an attention whose transposition `value` is."""
    value = _before(rewriter, value)
    call = bound_call(rewriter, value, "permute_dims")
    if call is None:
        return None
    *others, row, column = range(len(call.ty.shape))
    axes = [column, row, *others[::-1]] if call.attrs.axes is None else call.attrs.axes
    if [int(a) for a in axes] != [*others, column, row]:
        return None
    weights: relax.Expr = call.args[0]
    before = _before(rewriter, weights)
    where = bound_call(rewriter, before, "where")  # PyTorch's guard for rows without a key
    before = before if where is None else where.args[2]
    return None if bound_call(rewriter, before, "nn.softmax") is None else weights


def _before(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """Return the value before what keeps its matrices: casts, reshapes, repetitions of nothing."""
    shape = static_shape(value) or ()
    while True:
        found = (bound_call(rewriter, value, name) for name in _MOVES)
        call = next((call for call in found if call is not None), None)
        source = () if call is None else static_shape(call.args[0]) or ()
        if call is None or source[-2:] != shape[-2:] or prod(source) != prod(shape):
            return value
        value = call.args[0]
