"""Where the rows of a value lie: the earlier values that it is a view of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm import relax

from tvmscope.compiler.units.graph import Graph, dtype_of
from tvmscope.compiler.units.views import Strided, trace
from tvmscope.cuda.units import Dtype, Rows

DTYPES: tuple[Dtype, ...] = ("float16", "bfloat16", "float32")
"""Types of units, the narrowest first."""


def sources(
    graph: Graph, value: relax.Expr, *, scaled: bool = False, moved: bool = False
) -> Iterator[tuple[Dtype, Strided]]:
    """Yield the earliest dense values that `value` is made of by casts and reshapes, by type; also
    by permutations of rows, and values whose rows have regular places, if `moved`."""
    for dtype in DTYPES:
        view = trace(graph, value, dtype=dtype, scaled=scaled)
        fits = view is not None and (
            replace(view, scale=1.0).dense
            or (moved and (has_all_rows(view) or rows_of(view) is not None))
        )
        if view is not None and not fits:  # it is a part of something, or moved
            made = [v for v in (value, uncast(graph, value)) if dtype_of(v) == dtype]
            view = Strided.of(made[0]) if made else None
        if view is not None:
            yield dtype, view


def order_of(view: Strided) -> list[int]:
    """Return a view's axes in the order of its base."""
    return sorted(range(len(view.shape)), key=lambda n: (view.shape[n] != 1, -view.strides[n]))


def has_all_rows(view: Strided) -> bool:
    """Whether a view is its base with rows in another order."""
    order = order_of(view)
    base = replace(
        view,
        shape=tuple(view.shape[n] for n in order),
        strides=tuple(view.strides[n] for n in order),
    )
    return base.dense and order[-1] == len(order) - 1


def rows_of(view: Strided) -> Rows | None:
    """Return the places of a view's rows; None if they have more than three regular distances, or
    if a row's values are not side by side."""
    if view.strides[-1] != 1 or view.scale != 1.0:
        return None
    axes: list[tuple[int, int]] = []
    for extent, step in zip(view.shape[:-1], view.strides[:-1], strict=True):
        if axes and axes[-1][1] == extent * step:
            axes[-1] = (axes[-1][0] * extent, step)
        elif extent > 1:
            axes.append((extent, step))
    if len(axes) > 3 or any(step == 0 for _, step in axes):
        return None
    (_, outer), (middle, skip), (inner, step) = [(1, 0)] * (3 - len(axes)) + axes
    return Rows(sizes=(middle, inner), steps=(outer, skip, step), offset=view.offset)


def same_place(one: Strided, other: Strided) -> bool:
    """Whether two views are the same elements in the same order."""
    if not one.base.same_as(other.base):
        return False
    places = [(v.shape, v.strides, v.offset) for v in (one, other)]
    return (one.dense and other.dense) or places[0] == places[1]


def uncast(graph: Graph, value: relax.Expr) -> relax.Expr:
    """Return the value before casts between types of units."""
    while (cast := graph.call(value, "astype")) is not None and dtype_of(value) in DTYPES:
        value = cast.args[0]
    return value
