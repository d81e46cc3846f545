"""The rule for pooling: right in all variants, in blocks and plain, and only where it applies."""

from __future__ import annotations

from itertools import product

import pytest
import torch.nn.functional as nnf
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.paired_graph import Graph, Node, drawn
from tvmscope.core.target import Target


def image(graph: Graph, channels: int, size: tuple[int, int] = (9, 7)) -> Node:
    """An image in channel blocks."""
    return graph.conv2d(graph.input(3, 5, *size), channels, 1)


WINDOWS = ((3, 2, 1), (2, 2, 0), (3, 3, 1), (2, 3, 1))
"""size, stride, padding"""


@pytest.mark.parametrize(("window", "ceil", "channels"), product(WINDOWS, (False, True), (17, 32)))
def test_max_pooling_matches_pytorch(
    window: tuple[int, int, int], ceil: bool, channels: int, host: Target
) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, *window, ceil_mode=ceil),
        lambda v: nnf.max_pool2d(v, *window, ceil_mode=ceil),
        image(graph, channels, (8, 11)),
    )
    ran = graph.check(y, target=host)
    assert ran.conversions == 1
    assert ran.taken_by("pooling") == ["max_pool2d"] or window[2] == 0


def test_dilated_max_pooling_matches_pytorch(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 3, 1, 1, dilation=2),
        lambda v: nnf.max_pool2d(v, 3, 1, 1, dilation=2),
        image(graph, 7),
    )
    graph.check(y, target=host)


@pytest.mark.parametrize(
    ("window", "ceil", "count"), product(WINDOWS, (False, True), (False, True))
)
def test_average_pooling_matches_pytorch(
    window: tuple[int, int, int], ceil: bool, count: bool, host: Target
) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.avg_pool2d(v, *window, ceil_mode=ceil, count_include_pad=count),
        lambda v: nnf.avg_pool2d(v, *window, ceil_mode=ceil, count_include_pad=count),
        image(graph, 17, (8, 11)),
    )
    ran = graph.check(y, target=host)
    assert (ran.taken_by("pooling"), ran.conversions) == (["avg_pool2d"], 1)


@pytest.mark.parametrize("channels", [7, 32])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (9, 7), (4, 1)])
def test_adaptive_pooling_matches_pytorch(
    size: tuple[int, int], channels: int, host: Target
) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.adaptive_avg_pool2d(v, size),
        lambda v: nnf.adaptive_avg_pool2d(v, size),
        image(graph, channels),
    )
    ran = graph.check(y, target=host)
    assert ("mean" in ran.rules) == (size == (1, 1)), "only a mean over the image stays in blocks"


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("axes", [(2, 3), (-1, -2), (1,), (3,), (1, 2, 3), (0, 2, 3)])
def test_means_match_pytorch(axes: tuple[int, ...], keep: bool, host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.mean(v, list(axes), keep),
        lambda v: v.mean(axes, keep),
        image(graph, 17),
    )
    graph.check(y, target=host)


def test_pooling_of_plain_data_stays_plain(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 3, 2, 1),
        lambda v: nnf.max_pool2d(v, 3, 2, 1),
        graph.input(3, 17, 9, 7),
    )
    assert graph.check(y, target=host).rules == {"max_pool2d": "pooling"}


@st.composite
def pools(draw: st.DrawFn) -> dict[str, object]:
    """Any pooling whose result is not empty."""
    kernel = draw(st.tuples(*[st.sampled_from((1, 2, 3, 5))] * 2))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 2), (1, 2))))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = [draw(st.integers(max(1, s - 2 * p), 29)) for s, p in zip(spans, padding, strict=True)]
    return {
        "shape": (draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 5, 16, 17, 48))), *sizes),
        "window": (kernel, draw(st.tuples(*[st.integers(1, 3)] * 2)), padding),
        "dilation": dilation,
        "ceil": draw(st.booleans()),
        "blocked": draw(st.booleans()),
        "around": draw(st.booleans()),
    }


def check_pools(case: dict[str, object], target: Target) -> None:
    """The largest and the mean of the same windows; PyTorch's mean knows no dilation."""
    window, ceil, dilation = case["window"], case["ceil"], case["dilation"]
    graph = Graph()
    n, channels, *size = case["shape"]  # type: ignore[misc]
    x = graph.input(n, channels, *size)
    if case["blocked"]:
        x = graph.conv2d(x, channels, 1)
    elif case["around"]:
        x = graph.relu(x)
    found = [
        graph.apply(
            lambda v: relax.op.nn.max_pool2d(v, *window, dilation=dilation, ceil_mode=ceil),
            lambda v: nnf.max_pool2d(v, *window, dilation=dilation, ceil_mode=ceil),
            x,
        )
    ]
    if dilation == (1, 1):
        found += [
            graph.apply(
                lambda v: relax.op.nn.avg_pool2d(v, *window, ceil_mode=ceil),
                lambda v: nnf.avg_pool2d(v, *window, ceil_mode=ceil, count_include_pad=False),
                x,
            )
        ]
    if case["around"]:
        found = [graph.relu(graph.bias(y)) for y in found]
    ran = graph.check(*found, target=target)
    if any(window[2]):  # type: ignore[index]
        assert len(ran.taken_by("pooling")) == len(found)


@drawn(20)
@given(pools())
def test_drawn_pools_match_pytorch(host: Target, case: dict[str, object]) -> None:
    check_pools(case, host)


@drawn(8)
@given(pools())
def test_drawn_pools_match_pytorch_with_fewer_registers(
    narrow: Target, case: dict[str, object]
) -> None:
    check_pools(case, narrow)


@pytest.mark.slow
@drawn(150)
@given(pools())
def test_many_drawn_pools_match_pytorch(
    host: Target, narrow: Target, case: dict[str, object]
) -> None:
    check_pools(case, host)
    check_pools(case, narrow)


def test_channels_last_are_pooled_by_the_rule(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 3, 2, 1, layout="NHWC"),
        lambda v: nnf.max_pool2d(v.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1),
        graph.input(3, 9, 7, 48),
    )
    assert graph.check(y, target=host).rules == {"max_pool2d": "pooling"}


def test_a_large_window_matches_pytorch(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 13, 1, 6),
        lambda v: nnf.max_pool2d(v, 13, 1, 6),
        image(graph, 17, (13, 13)),
    )
    assert graph.check(y, target=host).taken_by("pooling") == ["max_pool2d"]


def test_windows_that_share_nothing_are_declined_and_right(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool2d(v, 2, 2),
        lambda v: nnf.max_pool2d(v, 2, 2),
        image(graph, 17),
    )
    assert graph.check(y, target=host).taken_by("fallback") == ["max_pool2d"]


def test_three_dimensions_are_two_pools(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        lambda v: relax.op.nn.max_pool3d(v, 3, 2, 1),
        lambda v: nnf.max_pool3d(v, 3, 2, 1),
        graph.input(3, 5, 7, 9, 8),
    )
    rules = graph.check(y, target=host).rules.values()
    assert "pooling" in rules
    assert "fallback" not in rules
