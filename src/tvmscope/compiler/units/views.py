"""Views of values: permutations, reshapes and parts, as strides.

A kernel reads such a view in place, so that no launch has to move it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tvm import relax

from tvmscope.compiler.graph.rewrite import flat
from tvmscope.compiler.units.graph import Graph, constant, dtype_of, name_of, scalar, shape_of

_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
_MOVES = ("permute_dims", "take", "strided_slice")
_CASTS = ("astype",)
_SCALES = ("multiply", "divide")


@dataclass(frozen=True, kw_only=True)
class Strided:
    """Elements of `base`, which is dense: shape, strides and offset in elements, times `scale`."""

    base: relax.Expr
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    scale: float = 1.0

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
    scaled: bool = False,
) -> Strided | None:
    """Return `value` (as `shape`) as a view of the earliest value of type `dtype` that allows it.

    Casts are passed if `dtype` is given, since a wider value in between began narrow; factors if
    `scaled`. None if not even `value` itself has the type.
    """
    steps: list[relax.Call] = []
    best = _through(graph, value, steps, shape, dtype)
    at = value
    while (call := _step(graph, at, casts=dtype is not None, scaled=scaled)) is not None:
        steps.insert(0, call)
        at = _source(call)
        best = _through(graph, at, steps, shape, dtype) or best
    return best


def _step(graph: Graph, value: relax.Expr, *, casts: bool, scaled: bool) -> relax.Call | None:
    call = graph.call(value, *_RESHAPES, *_MOVES, *_CASTS, *_SCALES)
    if call is None or not shape_of(call):
        return None
    name = name_of(call)
    if name in _CASTS and not casts:
        return None
    if name in _SCALES and (not scaled or _factor(call) is None):
        return None
    if name == "take" and (_index(call) is None or not shape_of(call.args[0])):
        return None
    return None if name == "strided_slice" and _part(call) is None else call


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


def _index(call: relax.Call) -> int | None:
    """Return the index of the one slice that `take` selects by a number."""
    index = constant(call.args[1])
    if index is None or index.ndim != 0 or call.attrs.axis is None:
        return None
    return int(index)


def _part(call: relax.Call) -> list[tuple[int, int]] | None:
    """Return the first element and the extent of a slice along each axis; None if it has steps."""
    given = [[scalar(n) for n in flat([a])] for a in call.args[1:]]
    before, after = shape_of(call.args[0]), shape_of(call)
    if any(None in numbers for numbers in given) or any(n != 1 for s in given[3:] for n in s):
        return None
    part = [(0, extent) for extent in before]
    for axis, begin in zip(given[0], given[1], strict=True):
        at, first = int(axis or 0) % len(before), int(begin or 0)
        part[at] = (max(0, first + before[at] if first < 0 else first), after[at])
    return part


def _through(
    graph: Graph,
    base: relax.Expr,
    steps: list[relax.Call],
    shape: tuple[int, ...] | None,
    dtype: str | None,
) -> Strided | None:
    if not isinstance(base, relax.Var) or base in graph.hidden:
        return None
    if dtype is not None and dtype_of(base) != dtype:
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
            view.take(int(call.attrs.axis), _index(call) or 0)
        elif name == "strided_slice" and not view.cut(_part(call) or []):
            return None
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

    def cut(self, part: Sequence[tuple[int, int]]) -> bool:
        """Keep a part of each axis; False if that would cut several pieces."""
        for axis, (first, extent) in enumerate(part):
            pieces = _merged(self.axes[axis])
            if prod(d for d, _ in pieces) == extent:
                continue
            if len(pieces) != 1 or first + extent > pieces[0][0]:
                return False
            self.offset += first * pieces[0][1]
            self.axes[axis] = _axis(extent, pieces[0][1])
        return True

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
