"""Transposed convolutions become ordinary ones: right for every stride, kernel and padding."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import assume, given
from hypothesis import strategies as st
from tvm import relax

from support.paired_graph import Graph, Node, drawn
from tvmscope.core.target import Target


def transposed(graph: Graph, x: Node, outputs: int, kernel: tuple[int, int], **how: Any) -> Node:
    groups = how.get("groups", 1)
    weight = graph.random(x.value.shape[1], outputs // groups, *kernel, scale=0.2)
    return graph.apply(
        partial(
            relax.op.nn.conv2d_transpose,
            strides=how.get("stride", 1),
            padding=how.get("padding", 0),
            output_padding=how.get("output_padding", 0),
            dilation=how.get("dilation", 1),
            groups=groups,
        ),
        lambda v, w: nnf.conv_transpose2d(v, w, None, **how),
        x,
        graph.constant(weight),
    )


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@drawn(20)
@given(
    batch=st.sampled_from((1, 2)),
    inputs=st.sampled_from((1, 5, 16, 17)),
    outputs=st.sampled_from((1, 3, 16, 31)),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=PAIRS,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    extra=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    groups=st.sampled_from((1, 1, 2, 3)),
)
def test_drawn_transposed_convolutions_match_pytorch(
    host: Target,
    batch: int,
    inputs: int,
    outputs: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    extra: tuple[int, int],
    groups: int,
) -> None:
    assume(all(e < s for e, s in zip(extra, stride, strict=True)))
    sides = zip(size, kernel, stride, padding, extra, strict=True)
    assume(all((n - 1) * s - 2 * p + k + e > 0 for n, k, s, p, e in sides))
    graph = Graph()
    x = graph.input(batch, inputs * groups, *size)
    how = {"stride": stride, "padding": padding, "output_padding": extra, "groups": groups}
    y = transposed(graph, x, outputs * groups, kernel, **how)
    graph.check(graph.relu(graph.bias(y)), target=host)


def test_the_usual_upsampling_runs_as_a_dense_convolution(host: Target) -> None:
    graph = Graph()
    x = graph.conv2d(graph.input(1, 5, 9, 7), 32, 1)
    y = transposed(graph, x, 16, (4, 4), stride=(2, 2), padding=(1, 1))
    ran = graph.check(graph.relu(graph.bias(y)), target=host)
    assert len(ran.taken_by("conv2d")) == 2


@pytest.mark.parametrize("how", [{"dilation": (2, 2)}], ids=str)
def test_other_forms_are_left_alone_and_right(how: dict[str, Any], host: Target) -> None:
    graph = Graph()
    y = transposed(graph, graph.input(1, 4, 5, 6), 4, (3, 3), stride=(2, 2), **how)
    ran = graph.check(y, target=host)
    assert ran.taken_by("conv2d") == []


def test_computed_weights_are_left_alone_and_right(host: Target) -> None:
    graph = Graph()
    x, w = graph.input(1, 4, 5, 6), graph.input(4, 3, 2, 2)
    y = graph.apply(
        lambda v, k: relax.op.nn.conv2d_transpose(v, k, strides=2),
        lambda v, k: torch.conv_transpose2d(v, k, None, 2),
        x,
        w,
    )
    assert graph.check(y, target=host).taken_by("conv2d") == []
