"""Views of values: permutations, reshapes and parts, as strides.

A kernel reads such a view in place, so that no launch has to move it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.units.graph import Graph, constant, dtype_of, name_of, scalar, shape_of

_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
_CASTS = ("astype",)
_FLOATS = ("float16", "bfloat16", "float32")
"""Types that a value may have had in between: an integer would have been rounded."""
_SLICE = "strided_slice"
_REPEAT = "broadcast_to"
_SCALES = ("multiply", "divide")


@dataclass(frozen=True, kw_only=True)
class Strided:
    """Elements of `base`, which is dense: shape, strides and offset in elements, times `scale`."""

    base: relax.Expr
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    scale: float = 1.0

    @classmethod
    def of(cls, value: relax.Expr) -> Strided:
        """Return all of a value."""
        return cls(base=value, shape=shape_of(value), strides=dense(shape_of(value)))

    @property
    def dense(self) -> bool:
        """Whether the view has all of the base's elements in the base's order."""
        own = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        wanted = [(d, s) for d, s in zip(self.shape, dense(self.shape), strict=True) if d != 1]
        whole = prod(self.shape) == prod(shape_of(self.base))
        return whole and own == wanted and self.offset == 0 and self.scale == 1.0


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor."""
    out, size = [], 1
    for extent in reversed(shape):
        out.append(size)
        size *= extent
    return tuple(reversed(out))


def trace(
    graph: Graph,
    value: relax.Expr,
    shape: tuple[int, ...] | None = None,
    *,
    dtype: str | None = None,
    wider: bool = False,
    scaled: bool = False,
) -> Strided | None:
    """Return `value` (as `shape`) as a view of the earliest value of type `dtype` that allows it;
    of that type or float32, if `wider`.

    Casts are passed if `dtype` is given, since a wider value in between began narrow; factors if
    `scaled`. None if not even `value` itself has the type.
    """
    steps: list[relax.Call] = []
    types = () if dtype is None else (dtype, "float32") if wider else (dtype,)
    best = _through(graph, value, steps, shape, types)
    at = value
    while (call := _step(graph, at, casts=dtype is not None, scaled=scaled)) is not None:
        steps.insert(0, call)
        at = _source(call)
        best = _through(graph, at, steps, shape, types) or best
    return best


def _step(graph: Graph, value: relax.Expr, *, casts: bool, scaled: bool) -> relax.Call | None:
    names = (*_RESHAPES, "permute_dims", "take", _SLICE, _REPEAT, *_CASTS, *_SCALES)
    call = graph.call(value, *names)
    if call is None or not shape_of(call):
        return None
    name = name_of(call)
    if name in _CASTS and (not casts or dtype_of(call) not in _FLOATS):
        return None
    if name == _SLICE and _slices(call) is None:
        return None
    if name in _SCALES and (not scaled or _factor(call) is None):
        return None
    if name == "take" and _only(call) is None:
        return None
    return call


def _source(call: relax.Call) -> relax.Expr:
    if name_of(call) == "multiply" and scalar(call.args[0]) is not None:
        return call.args[1]
    return call.args[0]


def _factor(call: relax.Call) -> float | None:
    if name_of(call) == "multiply":
        left = scalar(call.args[0])
        return scalar(call.args[1]) if left is None else left
    divisor = scalar(call.args[1])
    return 1 / divisor if divisor else None


def taken(call: relax.Call) -> range | None:
    """Return the indices that `take` selects by numbers, if their distance is constant."""
    index = constant(call.args[1]) if name_of(call) == "take" else None
    if index is None or index.ndim > 1 or call.attrs.axis is None or not shape_of(call.args[0]):
        return None
    size = shape_of(call.args[0])[int(call.attrs.axis)]
    numbers = index.reshape(-1).astype(np.int64)
    if str(call.attrs.mode) == "clip":
        numbers = numbers.clip(0, size - 1)
    if not numbers.size or (numbers < -size).any() or (numbers >= size).any():
        return None
    first, *rest = (int(n) % size for n in numbers)
    step = rest[0] - first if rest else 1
    found = range(first, first + step * len(numbers), step or 1)
    return found if step > 0 and list(found) == [first, *rest] else None


def _only(call: relax.Call) -> int | None:
    """Return the index of the one slice that `take` selects by a number, without its axis."""
    found = taken(call)
    return found.start if found is not None and len(shape_of(call.args[1])) == 0 else None


def _slices(call: relax.Call) -> list[tuple[int, int, int, int]] | None:
    """Return axis, begin, step and extent of each slice; None if they are not numbers, or if it
    goes backwards."""
    whole, left = shape_of(call.args[0]), shape_of(call)
    parts = [_numbers(a) for a in call.args[1:]]
    if len(parts) < 3 or None in parts or not whole:
        return None
    axes, begins, _, *given = (part or [] for part in parts)
    found = []
    for axis, begin, step in zip(axes, begins, given[0] if given else [1] * len(axes), strict=True):
        if step < 1:
            return None
        axis %= len(whole)
        first = begin + whole[axis] * (begin < 0)
        found.append((axis, min(max(first, 0), whole[axis]), step, left[axis]))
    return found


def _numbers(value: relax.Expr) -> list[int] | None:
    found = [scalar(field) for field in value.fields] if isinstance(value, relax.Tuple) else [None]
    return None if None in found else [int(n) for n in found if n is not None]


def _through(
    graph: Graph,
    base: relax.Expr,
    steps: list[relax.Call],
    shape: tuple[int, ...] | None,
    types: tuple[str, ...],
) -> Strided | None:
    if not isinstance(base, relax.Var | GenericConst) or base in graph.hidden:
        return None
    if types and dtype_of(base) not in types:
        return None
    own = shape_of(base)
    view = _View([_axis(d, s) for d, s in zip(own, dense(own), strict=True)])
    for call in steps:
        name = name_of(call)
        if name in _RESHAPES and not view.reshape(shape_of(call)):
            return None
        if name == "permute_dims":
            view.permute(call.attrs.axes)
        elif name == "take":
            view.take(int(call.attrs.axis), _only(call) or 0)
        elif name == _SLICE and not all(view.slice(*s) for s in _slices(call) or ()):
            return None
        elif name == _REPEAT:
            view.repeat(shape_of(call))
        elif name in _SCALES:
            view.scale *= _factor(call) or 1.0
    if shape is not None and not view.reshape(shape):
        return None
    return view.strided(base)


Piece = tuple[int, int]
"""The number of elements, and their distance."""


def _axis(extent: int, stride: int) -> list[Piece]:
    return [(extent, stride)] if extent != 1 else []


@dataclass
class _View:
    """Axes as pieces, outermost first: an axis that a reshape has merged may have several pieces,
    until another reshape splits it."""

    axes: list[list[Piece]]
    offset: int = 0
    scale: float = 1.0

    def permute(self, axes: Sequence[int] | None) -> None:
        """Permute the axes; None reverses them."""
        order = reversed(range(len(self.axes))) if axes is None else (int(a) for a in axes)
        self.axes = [self.axes[a] for a in order]

    def take(self, axis: int, index: int) -> None:
        """Select one slice of an axis, which is removed."""
        pieces = self.axes.pop(axis % len(self.axes))
        index %= prod(d for d, _ in pieces)
        for extent, stride in reversed(pieces):
            self.offset += index % extent * stride
            index //= extent

    def slice(self, axis: int, begin: int, step: int, extent: int) -> bool:
        """Keep a part of an axis; False if its elements have no common distance."""
        pieces = _merged(self.axes[axis])
        if step == 1 and prod(d for d, _ in pieces) == extent:
            return True
        if len(pieces) > 1:
            return False
        stride = pieces[0][1] if pieces else 0
        self.offset += begin * stride
        self.axes[axis] = _axis(extent, stride * step)
        return True

    def repeat(self, shape: tuple[int, ...]) -> None:
        """Repeat axes of one element, and all of them for further axes before them."""
        self.axes = [[] for _ in shape[len(self.axes) :]] + self.axes
        for axis, extent in enumerate(shape):
            if not self.axes[axis] and extent != 1:
                self.axes[axis] = [(extent, 0)]

    def reshape(self, shape: tuple[int, ...]) -> bool:
        """Change the axes over the same elements; False if a piece would be cut unevenly."""
        left = _merged(piece for axis in self.axes for piece in axis)
        axes: list[list[Piece]] = []
        for extent in shape:
            axes.append([])
            while extent != 1:
                if not left:
                    return False
                size, stride = left.pop(0)
                if extent % size == 0:
                    axes[-1].append((size, stride))
                    extent //= size
                elif size % extent == 0:
                    axes[-1].append((extent, stride * (size // extent)))
                    left.insert(0, (size // extent, stride))
                    extent = 1
                else:
                    return False
        self.axes = axes
        return not left

    def strided(self, base: relax.Expr) -> Strided | None:
        """Return one stride for each axis; None if an axis has several."""
        axes = [_merged(axis) for axis in self.axes]
        if any(len(axis) > 1 for axis in axes):
            return None
        shape = tuple(axis[0][0] if axis else 1 for axis in axes)
        strides, step = [], 1
        for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
            step = axis[0][1] if axis else step  # for one element, any stride is correct
            strides.append(step)
            step *= extent
        return Strided(
            base=base,
            shape=shape,
            strides=tuple(reversed(strides)),
            offset=self.offset,
            scale=self.scale,
        )


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Merge consecutive pieces without a gap."""
    out: list[Piece] = []
    for extent, stride in pieces:
        if out and out[-1][1] == extent * stride:
            out[-1] = (out[-1][0] * extent, stride)
        else:
            out.append((extent, stride))
    return out
