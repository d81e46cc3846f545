"""Masks of attention: what constant ones hide, and what a kernel reads of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from tvmscope.compiler.graph import known
from tvmscope.compiler.units.found import Operand
from tvmscope.compiler.units.graph import Array, Graph, name_of, scalar, shape_of

_HIDES = -1e4
"""A key with this added to its score, or in its place, has the weight 0 in every type, if the query
sees any other key."""

Shape = tuple[int, int, int, int]
"""Batch, heads, queries and keys."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A mask in the graph. If `hidden` is None, `value` is added to the scores; otherwise it is a
    condition, and where it is `hidden`, `fill` replaces the score."""

    value: relax.Expr
    hidden: bool | None = None
    fill: float = -np.inf


@dataclass(frozen=True, kw_only=True)
class Mask:
    """All masks of an attention, as its kernel takes them."""

    keys: int
    """The keys that any query sees are the first ones."""
    causal: bool = False
    operand: Operand | None = None
    strides: tuple[int, int, int] | None = None
    """The operand's strides over batch, heads and queries."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A constant mask: whether a query sees a key, and what is lowest for those that it does not
    see."""

    pairs: Array
    fill: float


def step_of(call: relax.Call) -> tuple[relax.Expr, Step] | None:
    """Return the scores that a call masks, and the mask; None if it masks nothing."""
    shape = shape_of(call)
    if name_of(call) == "add":
        left, right = call.args
        scores, other = (left, right) if shape_of(left) == shape else (right, left)
        return (scores, Step(value=other)) if isinstance(scores, relax.Var) else None
    if name_of(call) != "where":
        return None
    condition, first, second = call.args
    for given, scores, hidden in ((first, second, True), (second, first, False)):
        fill = scalar(given)
        if fill is not None and fill <= _HIDES and shape_of(scores) == shape:
            return scores, Step(value=condition, hidden=hidden, fill=fill)
    return None


def join(graph: Graph, steps: Sequence[Step], shape: Shape, dtype: str) -> Mask | None:
    """Return one mask for all of them; None if a kernel cannot take them."""
    found = {step: _seen(graph, step) for step in steps}
    constants = [seen for seen in found.values() if seen is not None]
    others = [step for step, seen in found.items() if seen is None]
    mask: Mask | None = Mask(keys=shape[3])
    if constants:
        mask = _constant(constants, shape)
        if mask is None and len(steps) == 1 and steps[0].hidden is None:
            mask, others = Mask(keys=shape[3]), list(steps)
    if mask is None or not others:
        return mask
    strides = _strides(shape_of(others[0].value), shape)
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


def _constant(masks: Sequence[_Seen], shape: Shape) -> Mask | None:
    pairs = masks[0].pairs
    for mask in masks[1:]:
        pairs = pairs & mask.pairs
    pairs = pairs.reshape((1,) * (4 - pairs.ndim) + pairs.shape)
    if any(own not in (1, full) for own, full in zip(pairs.shape, shape, strict=True)):
        return None
    if pairs.all():
        return Mask(keys=shape[3])
    if (causal := _causal(pairs, shape)) is not None:
        return causal
    if max(mask.fill for mask in masks) > -np.inf and not pairs.any(-1).all():
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


def _operand(step: Step, dtype: str) -> relax.Expr:
    if step.hidden is None:
        return relax.op.astype(step.value, dtype)
    hides, leaves = relax.const(-np.inf, dtype), relax.const(0.0, dtype)
    first, second = (hides, leaves) if step.hidden else (leaves, hides)
    return relax.op.where(step.value, first, second)


def _strides(given: tuple[int, ...], shape: Shape) -> tuple[int, int, int] | None:
    """Return a mask's strides; None if it is not over the keys."""
    given = (1,) * (4 - len(given)) + given
    if len(given) != 4 or given[3] != shape[3]:
        return None
    strides, step = [], given[3]
    for own, full in zip(reversed(given[:3]), reversed(shape[:3]), strict=True):
        if own not in (1, full):
            return None
        strides.append(0 if own == 1 else step)
        step *= own
    return strides[2], strides[1], strides[0]
