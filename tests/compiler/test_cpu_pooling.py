"""Pooling and means on channel blocks, in all their variants."""

from __future__ import annotations

from itertools import product

import pytest
import torch.nn.functional as nnf
from tvm import relax

from paired_graph import Graph, Node
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
    assert (ran.taken_by("fallback"), ran.conversions) == (["max_pool2d"], 1)


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
    assert (ran.taken_by("fallback"), ran.conversions) == (["avg_pool2d"], 1)


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
    assert graph.check(y, target=host).rules == {"max_pool2d": "fallback"}
