"""Operators that only move elements, in NHWC: padding, slices, reshapes, permutations, indexing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    operator_name,
    static_shape,
)
from tvmscope.compiler.rewrites.cuda.nhwc_twins import (
    TO_NHWC,
    axes_of,
    back,
    is_free,
    nhwc_shape,
    twin,
)

ELEMENTWISE = tuple(
    f"relax.{name}"
    for name in ("nn.relu", "nn.leakyrelu", "nn.silu", "nn.gelu", "nn.gelu_tanh", "sigmoid", "tanh",
                 "clip", "astype")
)  # fmt: skip


def split(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a split as slices, each of which can move a permutation after itself."""
    shape, given = static_shape(call.args[0]), call.attrs.indices_or_sections
    if shape is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    size = shape[axis]
    if isinstance(given, int):
        edges = [size * i // given for i in range(given + 1)]
    else:
        edges = [0, *(int(i) for i in given), size]
    parts = [
        rewriter.emit(
            relax.op.strided_slice(call.args[0], [axis], [low], [high], assume_inbound=False)
        )
        for low, high in itertools.pairwise(edges)
    ]
    return relax.Tuple(parts)


def _pad(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None:
        return None
    width = [int(w) for w in call.attrs.pad_width]
    pairs = [width[2 * a : 2 * a + 2] for a in TO_NHWC]
    value = float(call.attrs.pad_value)
    flat = [w for pair in pairs for w in pair]
    return back(rewriter, relax.op.nn.pad(image, flat, str(call.attrs.pad_mode), value))


def _slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None or len(call.args) < 4:
        return None
    axes = _numbers(call.args[1])
    if axes is None:
        return None
    moved = [TO_NHWC.index(a % 4) for a in axes]
    rest = [list(a.fields) for a in call.args[2:] if isinstance(a, relax.Tuple)]
    if len(rest) < len(call.args) - 2:
        return None
    begin, end, *strides = rest
    sliced = relax.op.strided_slice(image, moved, begin, end, strides[0] if strides else None)
    return back(rewriter, sliced)


def _numbers(value: relax.Expr) -> list[int] | None:
    fields: Sequence[Any] = value.fields if isinstance(value, relax.Tuple) else ()
    found = [int(f.value) for f in fields if isinstance(f, tvm.tirx.IntImm)]
    return found if found and len(found) == len(fields) else None


def _take(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite the selection of rows, columns or channels: a mirrored border, a rotation."""
    image, index = twin(rewriter, call.args[0]), static_shape(call.args[1])
    if image is None or index is None or len(index) != 1 or call.attrs.axis is None:
        return None
    axis = TO_NHWC.index(int(call.attrs.axis) % 4)
    return back(rewriter, relax.op.take(image, call.args[1], axis, str(call.attrs.mode)))


def _flip(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None:
        return None
    return back(rewriter, relax.op.flip(image, TO_NHWC.index(int(call.attrs.axis) % 4)))


def _tile(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image, repeats = twin(rewriter, call.args[0]), [int(r) for r in call.attrs.repeats]
    if image is None or len(repeats) > len(TO_NHWC):
        return None
    whole = (1,) * (len(TO_NHWC) - len(repeats)) + tuple(repeats)
    return back(rewriter, relax.op.tile(image, nhwc_shape(whole)))


def _broadcast(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image, shape = twin(rewriter, call.args[0]), static_shape(call)
    if image is None or shape is None or len(shape) != len(TO_NHWC):
        return None
    return back(rewriter, relax.op.broadcast_to(image, nhwc_shape(shape)))


def reshape(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a reshape of single pixels or single channels, which the permutation does not affect,
    and one that ends a shuffle."""
    before, after = static_shape(call.args[0]), static_shape(call)
    image = twin(rewriter, call.args[0])
    if image is None:
        return _shuffle(rewriter, call)
    if before is None or not is_free(before):
        return None
    if after is not None and len(after) == len(TO_NHWC) and is_free(after):
        return back(rewriter, relax.op.reshape(image, nhwc_shape(after)))
    return relax.op.reshape(image, call.args[1])


def _shuffle(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite reshape(elementwise(permute(reshape(image)))) that splits axes of an image, reorders
    the pieces and merges them to an image again (pixel shuffle, depth to space, shuffled
    channels): the same in NHWC, with the elementwise operators before it."""
    value, between = call.args[0], list[relax.Call]()
    while (found := _elementwise(rewriter, value)) is not None:
        between.insert(0, found)
        value = found.args[0]
    order = bound_call(rewriter, value, "permute_dims")
    first = bound_call(rewriter, order.args[0], "reshape") if order is not None else None
    image = twin(rewriter, first.args[0]) if first is not None else None
    after = static_shape(call)
    if order is None or first is None or image is None or not after or len(after) != len(TO_NHWC):
        return None
    moved = _shuffled(static_shape(first.args[0]), static_shape(first), axes_of(order), after)
    if moved is None:
        return None
    for one in between:
        image = rewriter.emit(relax.Call(one.op, [image, *one.args[1:]], one.attrs))
    pieces, axes = moved
    parts = rewriter.emit(relax.op.reshape(image, pieces))
    turned = rewriter.emit(relax.op.permute_dims(parts, axes))
    return back(rewriter, relax.op.reshape(turned, nhwc_shape(after)))


def _elementwise(rewriter: Rewriter, value: relax.Expr) -> relax.Call | None:
    bound = rewriter.lookup_binding(value) if isinstance(value, relax.Var) else None
    if isinstance(bound, relax.Call) and operator_name(bound) in ELEMENTWISE:
        return bound
    return None


def _shuffled(
    before: tuple[int, ...] | None,
    pieces: tuple[int, ...] | None,
    order: Sequence[int],
    after: tuple[int, ...],
) -> tuple[list[int], list[int]] | None:
    """Return the pieces of the NHWC image and their order before they merge to the NHWC result."""
    source = groups(before, pieces)
    if source is None or pieces is None:
        return None
    merged = groups(after, [pieces[a] for a in order])
    if merged is None:
        return None
    places = [piece for axis in TO_NHWC for piece in source[axis]]
    wanted = [order[j] for axis in TO_NHWC for j in merged[axis]]
    return [pieces[p] for p in places], [places.index(p) for p in wanted]


def groups(whole: Sequence[int] | None, pieces: Sequence[int] | None) -> list[list[int]] | None:
    """Return the consecutive pieces of each axis; None if a piece lies in several axes."""
    if whole is None or pieces is None or prod(whole) != prod(pieces):
        return None
    left, found = list(range(len(pieces))), list[list[int]]()
    for extent in whole:
        taken: list[int] = []
        while not taken or prod(pieces[p] for p in taken) < extent:
            if not left:
                return None
            taken.append(left.pop(0))
        if prod(pieces[p] for p in taken) != extent:
            return None
        found.append(taken)
    found[-1] += left  # ones
    return found


def _permute(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Merge two permutations into one, or none."""
    inner = bound_call(rewriter, call.args[0], "permute_dims")
    if inner is None:
        return None
    first, second = axes_of(inner), axes_of(call)
    both = tuple(first[a] for a in second)
    if both == tuple(range(len(both))):
        return inner.args[0]
    return relax.op.permute_dims(inner.args[0], both)


HANDLERS: dict[str, Handler] = {
    "relax.nn.pad": _pad,
    "relax.strided_slice": _slice,
    "relax.take": _take,
    "relax.flip": _flip,
    "relax.tile": _tile,
    "relax.broadcast_to": _broadcast,
    "relax.permute_dims": _permute,
}
