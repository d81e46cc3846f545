"""Values that are other values in another order: permutations, reshapes and parts as strides.

A kernel reads such a view where it lies, so that no launch has to move it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from tvm import relax

from tvmscope.compiler.units.graph import Graph, constant, dtype_of, name_of, scalar, shape_of

_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten")
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
        """Whether it is the base's elements in the base's order."""
        own = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        wanted = [(d, s) for d, s in zip(self.shape, dense(self.shape), strict=True) if d != 1]
        return own == wanted and self.offset == 0 and self.scale == 1.0


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense tensor."""
    out, size = [], 1
    for extent in reversed(shape):
        out.append(size)
        size *= extent
    return tuple(reversed(out))


def whole(value: relax.Expr) -> Strided:
    """A value as it lies."""
    return Strided(base=value, shape=shape_of(value), strides=dense(shape_of(value)))


def trace(
    graph: Graph,
    value: relax.Expr,
    shape: tuple[int, ...] | None = None,
    *,
    dtype: str | None = None,
    scaled: bool = False,
) -> Strided | None:
    """`value` (as `shape`) as a view of the earliest value of type `dtype` that allows it.

    Casts are passed where `dtype` is given, since what is wider in between began narrow; factors
    where `scaled`. None where not even `value` itself has the type.
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
    call = graph.call(value, *_RESHAPES, "permute_dims", "take", *_CASTS, *_SCALES)
    if call is None or not shape_of(call):
        return None
    name = name_of(call)
    if name in _CASTS and not casts:
        return None
    if name in _SCALES and (not scaled or _factor(call) is None):
        return None
    if name == "take" and (_index(call) is None or not shape_of(call.args[0])):
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


def _index(call: relax.Call) -> int | None:
    """Where `take` picks one slice, by a number."""
    index = constant(call.args[1])
    if index is None or index.ndim != 0 or call.attrs.axis is None:
        return None
    return int(index)


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
    view: Strided | None = whole(base)
    wanted: tuple[int, ...] | None = None
    for call in steps:
        if view is None:
            return None
        if name_of(call) in _RESHAPES:
            wanted = shape_of(call)  # several in a row are the last one
        elif name_of(call) in ("permute_dims", "take"):
            view = _moved(_reshaped(view, wanted), call)
            wanted = None
        elif name_of(call) in _SCALES:
            view = replace(view, scale=view.scale * (_factor(call) or 1.0))
    return _reshaped(view, shape or wanted) if view is not None else None


def _moved(view: Strided | None, call: relax.Call) -> Strided | None:
    if view is None:
        return None
    if name_of(call) == "permute_dims":
        given = call.attrs.axes
        rank = len(view.shape)
        axes = [int(a) for a in given] if given is not None else list(reversed(range(rank)))
        return replace(
            view,
            shape=tuple(view.shape[a] for a in axes),
            strides=tuple(view.strides[a] for a in axes),
        )
    axis, index = int(call.attrs.axis) % len(view.shape), _index(call) or 0
    keep = [a for a in range(len(view.shape)) if a != axis]
    return replace(
        view,
        shape=tuple(view.shape[a] for a in keep),
        strides=tuple(view.strides[a] for a in keep),
        offset=view.offset + (index % view.shape[axis]) * view.strides[axis],
    )


def _reshaped(view: Strided | None, shape: tuple[int, ...] | None) -> Strided | None:
    """The view in another shape; None where that needs a copy."""
    if view is None or shape is None or shape == view.shape:
        return view
    old = [(d, s) for d, s in zip(view.shape, view.strides, strict=True) if d != 1]
    strides: list[int] = []
    i = 0
    for run in _runs([d for d, _ in old], shape):
        part = old[i : i + run[0]]
        i += run[0]
        if any(a[1] != b[0] * b[1] for a, b in itertools.pairwise(part)):
            return None
        step = part[-1][1] if part else 1
        inner = []
        for extent in reversed(run[1]):
            inner.append(step)
            step *= extent
        strides += reversed(inner)
    return replace(view, shape=shape, strides=tuple(strides)) if i == len(old) else None


def _runs(old: list[int], new: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """Groups of as many elements on both sides: how many old extents, and the new ones."""
    out: list[tuple[int, tuple[int, ...]]] = []
    i = j = 0
    while j < len(new):
        first_i, first_j, left, right = i, j, 1, new[j]
        j += 1
        while left != right:
            if left < right and i < len(old):
                left *= old[i]
                i += 1
            elif j < len(new):
                right *= new[j]
                j += 1
            else:
                return []
        out.append((i - first_i, new[first_j:j]))
    return out
