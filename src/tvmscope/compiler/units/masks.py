"""Masks of attention: what constant ones hide, and what a kernel reads of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.graph import known
from tvmscope.compiler.units.found import Operand
from tvmscope.compiler.units.graph import Array, Graph, name_of, scalar, shape_of

_HIDES = -1e4
"""A key with this added to its score, or in its place, has the weight 0 in every type, if the query
sees any other key."""

_MOST_ELEMENTS = 1 << 25
"""A sum of constant masks that is larger stays in the graph."""

Shape = tuple[int, int, int, int]
"""Batch, heads, queries and keys."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A mask in the graph. If `hidden` is None, `value` is added to the scores; otherwise it is a
    condition, and where it is `hidden`, `fill` replaces the score."""

    value: relax.Expr
    hidden: bool | None = None
    fill: float = -np.inf
    shape: tuple[int, ...] = ()
    """Of the scores."""


@dataclass(frozen=True, kw_only=True)
class Mask:
    """All masks of an attention, as its kernel takes them."""

    keys: int
    """The keys that any query sees are the first ones."""
    causal: bool = False
    operand: Operand | None = None
    strides: tuple[int, int, int] | None = None
    """The operand's strides over batch, heads and queries."""
    batches: int | None = None
    """The operand has so many, which repeat."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A constant mask: whether a query sees a key, and what is lowest for those that it does not
    see."""

    pairs: Array
    fill: float


def step_of(
    call: relax.Call, is_product: Callable[[relax.Expr], bool] = lambda _: False
) -> tuple[relax.Expr, Step] | None:
    """Return the scores that a call masks, and the mask; None if it masks nothing. Of two terms of
    one shape, the scores are the product."""
    shape = shape_of(call)
    if name_of(call) == "add":
        left, right = call.args
        is_left = shape_of(left) == shape and not (shape_of(right) == shape and is_product(right))
        scores, other = (left, right) if is_left else (right, left)
        known_scores = isinstance(scores, relax.Var)
        return (scores, Step(value=other, shape=shape)) if known_scores else None
    if name_of(call) != "where":
        return None
    condition, first, second = call.args
    for given, scores, hidden in ((first, second, True), (second, first, False)):
        fill = scalar(given)
        if fill is not None and fill <= _HIDES and shape_of(scores) == shape:
            return scores, Step(value=condition, hidden=hidden, fill=fill, shape=shape)
    return None


def join(graph: Graph, steps: Sequence[Step], shape: Shape, dtype: str) -> Mask | None:
    """Return one mask for all of them; None if a kernel cannot take them."""
    mask = _seen_or_read(graph, steps, shape, dtype)
    return _sum(graph, steps, shape) if mask is None else mask


def _seen_or_read(graph: Graph, steps: Sequence[Step], shape: Shape, dtype: str) -> Mask | None:
    """Return what constant masks hide, and at most one other mask as an operand."""
    found = {step: _seen(graph, step) for step in steps}
    constants = {step: seen for step, seen in found.items() if seen is not None}
    others = [step for step, seen in found.items() if seen is None]
    mask: Mask | None = Mask(keys=shape[3])
    if constants:
        mask = _constant(constants, shape)
        if mask is None and len(steps) == 1 and steps[0].hidden is None:
            mask, others = Mask(keys=shape[3]), list(steps)
    if mask is None or not others:
        return mask
    strides = _strides(_placed(shape_of(others[0].value), others[0], shape), shape)
    if len(others) > 1 or mask.operand is not None or strides is None:
        return None
    return replace(mask, operand=_operand(others[0], dtype), strides=strides)


def _seen(graph: Graph, step: Step) -> _Seen | None:
    """Return a constant mask that either hides a key or leaves its score as it is."""
    values = known.value(graph, step.value)
    if values is None:
        return None
    if step.hidden is not None:
        return _Seen(pairs=values != step.hidden, fill=step.fill)
    hidden = values <= _HIDES
    if not np.all(hidden | (values == 0)):
        return None
    return _Seen(pairs=~hidden, fill=float(values.max(initial=-np.inf, where=hidden)))


def _constant(masks: Mapping[Step, _Seen], shape: Shape) -> Mask | None:
    pairs = np.ones((1, 1, 1, 1), np.bool_)
    for step, mask in masks.items():
        place = _placed(mask.pairs.shape, step, shape)
        if place is None:
            return None
        pairs = pairs & mask.pairs.reshape(place)
    if pairs.all():
        return Mask(keys=shape[3])
    if (causal := _causal(pairs, shape)) is not None:
        return causal
    if max(mask.fill for mask in masks.values()) > -np.inf and not pairs.any(-1).all():
        return None  # a query that sees nothing weighs its keys by what replaces their scores
    pairs = np.broadcast_to(pairs, (*pairs.shape[:3], shape[3]))
    operand = np.where(pairs, np.float32(0), np.float32(-np.inf)).reshape(-1)
    return Mask(keys=shape[3], operand=operand, strides=_strides(pairs.shape, shape))


def _causal(pairs: Array, shape: Shape) -> Mask | None:
    """Return the mask of queries each of which sees one key more than the one before it."""
    _, _, queries, keys = shape
    if not (pairs == pairs[:1, :1]).all():
        return None
    rows = np.broadcast_to(pairs[0, 0], (queries, keys))
    diagonal = int(rows[0].sum()) - 1
    if diagonal < 0 or queries + diagonal > keys:
        return None
    if not (rows == np.tri(queries, keys, diagonal, dtype=np.bool_)).all():
        return None
    return Mask(keys=queries + diagonal, causal=queries > 1)


def _sum(graph: Graph, steps: Sequence[Step], shape: Shape) -> Mask | None:
    """Return the sum of what is added to the scores, as an operand that is computed here: a bias of
    distances and, for shifted windows, what each window hides."""
    parts = [_added(graph, step, shape) for step in steps]
    found = [part for part in parts if part is not None]
    batches = max((len(part) for part in found), default=0)
    if not found or len(found) < len(parts) or any(batches % len(part) for part in found):
        return None
    sizes = (max(axis) for axis in zip(*(part.shape for part in found), strict=True))
    if prod(sizes) > _MOST_ELEMENTS:
        return None
    total = np.zeros((batches, 1, 1, 1), np.float32)
    with np.errstate(over="ignore"):
        for part in found:
            total = total + np.tile(part, (batches // len(part), 1, 1, 1)).astype(np.float32)
    if not (total > _HIDES).any(-1).all():
        return None  # a query that sees nothing weighs its keys by what replaces their scores
    return Mask(
        keys=shape[3],
        operand=np.where(total > _HIDES, total, np.float32(-np.inf)).reshape(-1),
        strides=_strides(total.shape, (batches, *shape[1:])),
        batches=batches if 1 < batches < shape[0] else None,
    )


def _added(graph: Graph, step: Step, shape: Shape) -> Array | None:
    """Return a constant that is added to the scores, as batches (which repeat), heads, queries and
    keys; one head or query if all are equal."""
    values = known.value(graph, step.value) if step.hidden is None else None
    *leading, _, keys = step.shape
    heads = _split(step, shape)
    if values is None or heads is None:
        return None
    own = (1,) * (len(step.shape) - values.ndim) + values.shape
    first = next((n for n in range(heads) if own[n] > 1), heads)
    equal_heads = prod(own[heads:-2]) == 1
    whole = (*leading[first:heads], *([1] if equal_heads else leading[heads:]), own[-2], keys)
    values = values.reshape(
        (*own[first:heads], *([1] if equal_heads else own[heads:-2]), *own[-2:])
    )
    return np.broadcast_to(values, whole).reshape(
        prod(leading[first:heads]), 1 if equal_heads else shape[1], own[-2], keys
    )


def _operand(step: Step, dtype: str) -> relax.Expr:
    if step.hidden is None:
        return relax.op.astype(step.value, dtype)
    hides, leaves = relax.const(-np.inf, dtype), relax.const(0.0, dtype)
    first, second = (hides, leaves) if step.hidden else (leaves, hides)
    return relax.op.where(step.value, first, second)


def _placed(given: tuple[int, ...], step: Step, shape: Shape) -> Shape | None:
    """Return a mask's extents over batch, heads, queries and keys, each of which is 1 or all; None
    if it repeats over a part of one."""
    *leading, queries, keys = step.shape
    if (queries, keys) != shape[2:] or len(given) > len(step.shape):
        return None
    *own, rows, columns = (1,) * (len(step.shape) - len(given)) + given
    split = _split(step, shape)
    if split is None:  # batch and heads are one axis
        each = shape[:2] if own == leading and prod(leading) == shape[0] * shape[1] else (1, 1)
        found = (*each, rows, columns) if prod(own) == prod(each) else None
    else:
        parts = (own[:split], leading[:split]), (own[split:], leading[split:])
        whole = all(part == full or prod(part) == 1 for part, full in parts)
        found = (prod(own[:split]), prod(own[split:]), rows, columns) if whole else None
    return found


def _split(step: Step, shape: Shape) -> int | None:
    """Return the first axis of the heads in the scores that a mask is for."""
    *leading, queries, keys = step.shape
    if (queries, keys) != shape[2:]:
        return None
    found = (n for n in range(len(leading), -1, -1) if prod(leading[n:]) == shape[1])
    heads = next(found, None)
    return None if heads is None or prod(leading[:heads]) != shape[0] else heads


def _strides(given: Shape | None, shape: Shape) -> tuple[int, int, int] | None:
    """Return a mask's strides; None if it is not over the keys."""
    if given is None or given[3] != shape[3]:
        return None
    strides, step = [], given[3]
    for own in reversed(given[:3]):
        strides.append(0 if own == 1 else step)
        step *= own
    return strides[2], strides[1], strides[0]
