"""Follows channels of blocked tensors through operators that only move them.

    x1, x2 = split(x);  shuffle(concat(x1, y))  ->  "channels 0, 64, 1, 65 ... of x and y"

Slices, splits, concatenations and the transposes of a channel shuffle change no value, so that what
they give is known by index. Nothing is copied until somebody reads it, and then once: the channels
that are read, from where they were computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.graph.rewrite import operator_name, static_shape
from tvmscope.compiler.kernels.convolutions import Convolution
from tvmscope.compiler.kernels.packing import Array


@dataclass(frozen=True)
class Picks:
    """The value (N, *channels, H, W) that has these channels of some blocked tensors."""

    sources: tuple[relax.Expr, ...]
    at: Array
    """Of each channel, its number in the blocks of all sources, fillings counted."""

    @property
    def is_image(self) -> bool:
        """Whether the value has four dimensions."""
        return self.at.ndim == 1


def whole(blocks: relax.Expr, channels: int) -> Picks:
    """All channels of a blocked tensor."""
    return Picks((blocks,), np.arange(channels))


def joined(parts: Sequence[Picks]) -> Picks:
    """The channels of some values, one after the other."""
    sources: list[relax.Expr] = []
    for part in parts:
        sources += [s for s in part.sources if not any(s.same_as(known) for known in sources)]
    return Picks(tuple(sources), np.concatenate([_counted_in(sources, p) for p in parts]))


def used(picks: Picks) -> Picks:
    """The same channels, without the sources that none of them is of."""
    starts = _starts(picks.sources)
    held = [
        source
        for source, low, high in zip(picks.sources, starts, starts[1:], strict=False)
        if np.any((low <= picks.at) & (picks.at < high))
    ]
    return Picks(tuple(held), _counted_in(held, picks))


def _counted_in(sources: Sequence[relax.Expr], picks: Picks) -> Array:
    """Channels as they are counted in `sources`, among which theirs are."""
    own, starts = _starts(picks.sources), _starts(sources)
    number = np.searchsorted(own, picks.at, side="right") - 1
    new = np.zeros(len(own), int)
    for i, source in enumerate(picks.sources):
        new[i] = next((n for n, known in enumerate(sources) if known.same_as(source)), 0)
    return np.asarray(picks.at - own[number] + starts[new[number]])


def _starts(sources: Sequence[relax.Expr]) -> Array:
    """Where each source begins, and where the last one ends."""
    return np.cumsum([0, *(_width(source) for source in sources)])


def _width(blocks: relax.Expr) -> int:
    shape = static_shape(blocks)
    assert shape is not None
    return shape[1] * CHANNEL_BLOCK


def moved(call: relax.Call, given: Picks) -> Picks | None:
    """What a call makes of its first argument; None where it does more than move channels."""
    mover = _MOVERS.get(operator_name(call))
    found = mover(call, given.at) if mover is not None else None
    return None if found is None else used(replace(given, at=found))


def divided(call: relax.Call, given: Picks) -> list[Picks] | None:
    """The parts that `relax.split` makes of channels."""
    sizes = [static_shape_of(field) for field in getattr(call.ty, "fields", ())]
    if int(call.attrs.axis) % 4 != 1 or not given.is_image or not all(sizes):
        return None
    ends = np.cumsum([size[1] for size in sizes if size])
    return [used(replace(given, at=part)) for part in np.split(given.at, ends[:-1])]


def static_shape_of(kind: relax.TensorType) -> tuple[int, ...] | None:
    """The shape that a type has."""
    return static_shape(relax.Var("_", kind))


def _reshape(call: relax.Call, at: Array) -> Array | None:
    old, new = static_shape(call.args[0]), static_shape(call)
    if old is None or new is None or len(new) < 4 or new[0] != old[0] or new[-2:] != old[-2:]:
        return None
    return at.reshape(new[1:-2])


def _permute(call: relax.Call, at: Array) -> Array | None:
    axes, rank = [int(a) for a in call.attrs.axes or ()], at.ndim + 3
    if len(axes) != rank or axes[0] != 0 or axes[-2:] != [rank - 2, rank - 1]:
        return None
    return at.transpose([axis - 1 for axis in axes[1:-2]])


def _slice(call: relax.Call, at: Array) -> Array | None:
    axes, begin, end, *strides = (_numbers(arg) for arg in call.args[1:])
    step = strides[0] if strides else [1]
    shape = static_shape(call)
    if at.ndim != 1 or shape is None or axes is None or [a % 4 for a in axes] != [1]:
        return None
    if not begin or not end or not step or step[0] < 1:
        return None
    found = at[begin[0] : end[0] : step[0]]
    return found if len(found) == shape[1] else None


def _take(call: relax.Call, at: Array) -> Array | None:
    index = call.args[1]
    if at.ndim != 1 or not isinstance(index, GenericConst) or call.attrs.axis is None:
        return None
    wanted = index.value.numpy()
    inside = wanted.size and 0 <= wanted.min() <= wanted.max() < len(at)
    return at[wanted] if int(call.attrs.axis) % 4 == 1 and wanted.ndim == 1 and inside else None


def _numbers(value: relax.Expr) -> list[int] | None:
    """The integers of a tuple; None where one is computed."""
    fields = value.fields if isinstance(value, relax.Tuple) else ()
    found = [getattr(field, "value", None) for field in fields]
    return [int(n) for n in found if n is not None] if None not in found else None


_MOVERS: dict[str, Callable[[relax.Call, Array], Array | None]] = {
    "relax.reshape": _reshape,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}


def with_weights_moved(conv: Convolution, picks: Picks) -> Convolution | None:
    """The convolution that reads the one source of its channels as it is.

    None where the source has more blocks than the channels fill, which would be multiplied by
    zeros, or a group of channels has weights of its own.
    """
    if conv.groups != 1 or len(picks.sources) != 1 or len(np.unique(picks.at)) < len(picks.at):
        return None
    if _width(picks.sources[0]) // CHANNEL_BLOCK > -(-conv.inputs // CHANNEL_BLOCK):
        return None
    count = int(picks.at.max()) + 1
    outputs, _, *window = conv.kernel.shape
    kernel = np.zeros((outputs, count, *window), conv.kernel.dtype)
    kernel[:, picks.at] = conv.kernel
    return replace(conv, kernel=kernel, given=(conv.given[0], count, *conv.given[2:]))
