"""Zero padding before a convolution becomes the convolution's own."""

from __future__ import annotations

import pytest
import torch.nn.functional as nnf
from tvm import relax

from support.paired_graph import Graph, Node
from tvmscope.compiler.rewrites.fold_pads import fold_pads
from tvmscope.core.target import Target


def _padded(graph: Graph, widths: list[int], value: float = 0.0, mode: str = "constant") -> Node:
    """x padded by `widths` (top, bottom, left, right)."""
    top, bottom, left, right = widths
    return graph.apply(
        lambda v: relax.op.nn.pad(v, [0, 0, 0, 0, *widths], pad_mode=mode, pad_value=value),
        lambda v: (
            nnf.pad(v, (left, right, top, bottom), mode=mode, value=value)
            if mode == "constant"
            else nnf.pad(v, (left, right, top, bottom), mode=mode)
        ),
        graph.input(1, 3, 11, 9),
    )


def _pads_left(graph: Graph, output: Node) -> int:
    return fold_pads()(graph.module(output)).script().count("nn.pad(")


def test_asymmetric_padding_is_folded_and_right(host: Target) -> None:
    graph = Graph()
    output = graph.conv2d(_padded(graph, [0, 1, 2, 3]), 5, stride=2, padding=(1, 0, 0, 1))
    assert _pads_left(graph, output) == 0
    graph.check(output, target=host)


def test_padding_by_nothing_is_dropped(host: Target) -> None:
    graph = Graph()
    output = graph.conv2d(_padded(graph, [0, 0, 0, 0], 1.0), 5)
    assert _pads_left(graph, output) == 0
    graph.check(output, target=host)


@pytest.mark.parametrize(("value", "mode"), [(1.0, "constant"), (0.0, "reflect")])
def test_other_padding_stays(host: Target, value: float, mode: str) -> None:
    graph = Graph()
    output = graph.conv2d(_padded(graph, [1, 1, 1, 1], value, mode), 5)
    assert _pads_left(graph, output) == 1
    graph.check(output, target=host)
