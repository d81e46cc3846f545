"""The rule for reductions over rows: right on odd shapes, and only taken where it applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.paired_graph import Graph, drawn
from tvmscope.core.target import Target

op = relax.op
REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (op.sum, torch.sum),
    "mean": (op.mean, torch.mean),
    "max": (op.max, torch.amax),
    "min": (op.min, torch.amin),
}


def taken(
    name: str, shape: list[int], axes: list[int], target: Target, *, around: bool = False
) -> set[str | None]:
    """The rules of the kernels, after the result has been compared."""
    ours, reference = REDUCTIONS[name]
    graph = Graph()
    x = graph.input(*shape)
    x = graph.multiply(x, x) if around else x
    y = graph.apply(lambda v: ours(v, axes), lambda v: reference(v, axes), x)
    y = graph.relu(graph.add(y, graph.constant(torch.tensor(0.25)))) if around else y
    return set(graph.check(y, target=target).rules.values())


ROWS = st.sampled_from((256, 272, 320, 512, 1024, 3136))
OUTER = st.lists(st.sampled_from((1, 2, 3, 7, 13)), min_size=1, max_size=3)


@drawn(30)
@given(st.sampled_from(list(REDUCTIONS)), OUTER, ROWS, st.booleans())
def test_drawn_rows_match_pytorch(
    host: Target, name: str, outer: list[int], length: int, around: bool
) -> None:
    found = taken(name, [*outer, length], [len(outer)], host, around=around)
    assert "reduction" in found


@drawn(15)
@given(st.sampled_from(list(REDUCTIONS)), OUTER, st.sampled_from(((16, 17), (31, 16), (2, 9, 32))))
def test_drawn_rows_of_several_axes_match_pytorch(
    narrow: Target, name: str, outer: list[int], inner: tuple[int, ...]
) -> None:
    axes = list(range(len(outer), len(outer) + len(inner)))
    assert taken(name, [*outer, *inner], axes, narrow) == {"reduction"}


@pytest.mark.slow
@drawn(150)
@given(
    st.sampled_from(list(REDUCTIONS)),
    st.lists(st.sampled_from((1, 2, 3, 5, 8, 16, 31, 64)), min_size=1, max_size=4),
    st.data(),
)
def test_drawn_reductions_match_pytorch_whoever_takes_them(
    host: Target, narrow: Target, name: str, shape: list[int], data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)
    axes = sorted(data.draw(some))
    for target in (host, narrow):
        assert taken(name, shape, axes, target, around=data.draw(st.booleans()))


NEAR_MISSES = {
    "rows that fill no vectors": ([7, 509], [1]),
    "short rows": ([31, 64], [1]),
    "leading axes": ([512, 31], [0]),
    "axes in the middle": ([3, 512, 16], [1]),
    "first and last": ([3, 5, 512], [0, 2]),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_declined_and_right(name: str, host: Target) -> None:
    shape, axes = NEAR_MISSES[name]
    assert taken("sum", shape, axes, host) == {"fallback"}


def test_whole_tensors_match_pytorch(host: Target) -> None:
    assert taken("sum", [3, 256], [0, 1], host) == {"reduction"}
    assert taken("mean", [3, 256], [0, 1], host) == {"fallback"}, "its division comes behind"


def test_the_place_of_the_largest_is_declined_and_right(host: Target) -> None:
    graph = Graph()
    x = graph.input(7, 512)
    y = graph.apply(lambda v: op.argmax(v, 1), lambda v: v.argmax(1), x)
    assert set(graph.check(y, target=host).rules.values()) == {"fallback"}
