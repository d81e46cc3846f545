"""Turns matmul, softmax, matmul into one attention kernel.

    matmul(softmax(matmul(q, k) + mask), v) -> attention(q, panels of k, panels of v, mask)

with or without a mask and PyTorch's guard against empty rows; reshapes in between that keep the
last two dimensions do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

import tvm
from tvm import relax

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.graph.rewrite import (
    OUT_ELEMENTWISE_FUSABLE,
    Rewriter,
    bound_call,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.kernels.attention import Shape, attention
from tvmscope.compiler.kernels.blocked import pack_panels
from tvmscope.compiler.rewrites.cpu.row_kernels import guarded_softmax
from tvmscope.core.target import Target


def fuse_attention(target: Target) -> tvm.transform.Pass:
    """Return the pass for a CPU target."""
    return rewrite_calls("FuseAttention", {"relax.matmul": partial(_fuse, target)})


@dataclass(frozen=True)
class _Found:
    query: relax.Expr
    keys: relax.Expr
    mask: relax.Expr | None
    scores: tuple[int, ...]
    """The shape to which the mask was added."""
    empty_is_zero: bool


def _fuse(target: Target, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    found = _match(rewriter, call.args[0])
    left, right = static_shape(call.args[0]), static_shape(call.args[1])
    if found is None or left is None or right is None or str(call.ty.dtype) != "float32":
        return None
    q, k = static_shape(found.query), static_shape(found.keys)
    if q is None or k is None or len(left) < 3 or left[:-2] != right[:-2] or q[:-2] != k[:-2]:
        return None
    batch, (rows, depth), (columns, width) = prod(left[:-2]), q[-2:], right[-2:]
    heads = _heads(found, batch)
    if prod(q[:-2]) != batch or left[-2:] != (rows, columns) or heads is None:
        return None
    panel, emit = tiles.panel(target), rewriter.builder_.emit

    def packed(value: relax.Expr, shape: tuple[int, int, int]) -> relax.Expr:
        flat = emit(relax.op.reshape(value, shape))
        pack = partial(pack_panels, panel=panel)
        return emit(rewriter.builder_.call_te(pack, flat, primfunc_name_hint="pack"))

    result = rewriter.builder_.call_te(
        partial(
            attention,
            shape=Shape(
                columns=columns,
                width=width,
                computed_rows=tiles.padded_rows(rows, target),
                heads=heads,
                empty_is_zero=found.empty_is_zero,
            ),
        ),
        emit(relax.op.reshape(found.query, (batch, rows, depth))),
        packed(found.keys, (batch, depth, columns)),
        packed(call.args[1], (batch, columns, width)),
        *([] if found.mask is None else [found.mask]),
        primfunc_name_hint="attention",
        primfunc_attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
    )
    return relax.op.reshape(emit(result), static_shape(call) or ())


def _heads(found: _Found, batch: int) -> int | None:
    """Return the heads per item of the batch; None if the mask does not have four dimensions."""
    if found.mask is None:
        return batch
    mask, scores = static_shape(found.mask), found.scores
    if mask is None or len(mask) != 4 or len(scores) != 4 or prod(scores[:2]) != batch:
        return None
    fits = all(m in (1, s) for m, s in zip(mask, scores, strict=True))
    return scores[1] if fits and mask[3] == scores[3] else None


def _match(rewriter: Rewriter, weights: relax.Expr) -> _Found | None:
    weights = _through_reshapes(rewriter, weights)
    softmax, guarded = bound_call(rewriter, weights, "nn.softmax"), False
    if softmax is None and (where := bound_call(rewriter, weights, "where")) is not None:
        softmax, guarded = guarded_softmax(rewriter, where), True
    if softmax is None:
        return None
    scores, mask = softmax.args[0], None
    shape = static_shape(scores)
    if shape is None or int(softmax.attrs.axis) not in (-1, len(shape) - 1):
        return None
    if (add := bound_call(rewriter, scores, "add")) is not None:
        scores, mask = add.args
        if static_shape(scores) != shape:
            return None
    product = bound_call(rewriter, _through_reshapes(rewriter, scores), "matmul")
    if product is None or (static_shape(product) or ())[-2:] != shape[-2:]:
        return None
    return _Found(product.args[0], product.args[1], mask, shape, guarded)


def _through_reshapes(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """Return the value before reshapes that keep the last two dimensions."""
    while True:
        call = bound_call(rewriter, value, "reshape")
        if call is None:
            return value
        before, after = static_shape(call.args[0]), static_shape(call)
        if before is None or after is None or before[-2:] != after[-2:]:
            return value
        value = call.args[0]
