"""Half precision through the CPU pipeline; other types keep their values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given
from tvm import relax

from support.convolutions import Convolution, convolutions
from support.paired_graph import Graph, Node, drawn
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import BFLOAT16, FLOAT16
from tvmscope.core.target import Target

HALF = CompileOptions(precision=FLOAT16)


@drawn(12)
@given(convolutions())
def test_drawn_convolutions_are_right_in_half_precision(host: Target, case: Convolution) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph), target=host, options=HALF)
    assert ran.taken_by("conv2d")
    assert ran.taken_by(None) == []


@drawn(8)
@given(convolutions(smallest_channels=2))
def test_drawn_depthwise_convolutions_are_right_in_half_precision(
    narrow: Target, case: Convolution
) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph, depthwise=True), target=narrow, options=HALF)
    assert len(ran.taken_by("depthwise")) == 1


def grouped(graph: Graph) -> Node:
    return graph.relu(graph.bias(graph.conv2d(graph.input(3, 12, 9, 7), 18, groups=6)))


def transposed(graph: Graph) -> Node:
    weight = graph.constant(graph.random(17, 5, 3, 3, scale=0.1))
    return graph.apply(
        lambda v, w: relax.op.nn.conv2d_transpose(v, w, strides=2, output_padding=1),
        lambda v, w: nnf.conv_transpose2d(v, w, None, 2, 0, 1),
        graph.input(3, 17, 9, 7),
        weight,
    )


def network(graph: Graph) -> Node:
    x = graph.relu(graph.bias(graph.conv2d(graph.input(3, 3, 17, 13), 17, stride=2, padding=1)))
    x = graph.add(graph.conv2d(x, 17, padding=1), x)
    x = graph.epilogue(graph.conv2d(x, 17, padding=1, groups=17), "clip")
    x = graph.apply(lambda v: relax.op.nn.avg_pool2d(v, 2, 2), lambda v: nnf.avg_pool2d(v, 2, 2), x)
    x = graph.apply(lambda v: relax.op.mean(v, [2, 3]), lambda v: v.mean((2, 3)), x)
    weight = graph.constant(graph.random(17, 5, scale=0.2))
    return graph.bias(graph.apply(relax.op.matmul, torch.matmul, x, weight))


def attention(graph: Graph) -> Node:
    q, k, v = (graph.input(2, 3, 11, 13) for _ in range(3))
    k = graph.apply(
        lambda v: relax.op.permute_dims(v, [0, 1, 3, 2]), lambda v: v.transpose(2, 3), k
    )
    scores = graph.epilogue(graph.apply(relax.op.matmul, torch.matmul, q, k), "scale")
    scores = graph.apply(lambda v: relax.op.nn.softmax(v, -1), lambda v: v.softmax(-1), scores)
    return graph.apply(relax.op.matmul, torch.matmul, scores, v)


@pytest.mark.parametrize("build", [grouped, transposed, network, attention])
def test_graphs_are_right_in_half_precision(build: Callable[[Graph], Node], host: Target) -> None:
    graph = Graph()
    graph.check(build(graph), target=host, options=HALF)


@pytest.mark.parametrize("build", [grouped, network, attention])
def test_graphs_are_right_in_bfloat16(build: Callable[[Graph], Node], narrow: Target) -> None:
    graph = Graph()
    graph.check(build(graph), target=narrow, options=CompileOptions(precision=BFLOAT16))


def test_half_precision_is_not_transformed(host: Target) -> None:
    """Winograd's transforms would magnify its rounding to 0.6 % of the largest result."""
    graph = Graph()
    x = graph.conv2d(graph.input(1, 5, 28, 28), 16, 1)
    ran = graph.check(graph.conv2d(x, 16, padding=1), target=host, options=HALF)
    assert (len(ran.taken_by("conv2d")), ran.taken_by("winograd")) == (2, [])


@pytest.mark.parametrize("kind", ["adaptive", "window"])
def test_a_half_precision_average_of_a_large_image_is_right(kind: str, host: Target) -> None:
    """12544 ones add up to 2048 in half precision: 2048 + 1 rounds down."""
    graph = Graph()
    x = graph.relu(graph.conv2d(graph.input(1, 3, 112, 112), 7, 1))
    x = graph.add(x, graph.constant(torch.tensor(1.0)))
    if kind == "adaptive":
        y = graph.apply(
            lambda v: relax.op.nn.adaptive_avg_pool2d(v, 1),
            lambda v: nnf.adaptive_avg_pool2d(v, 1),
            x,
        )
    else:
        y = graph.apply(
            lambda v: relax.op.nn.avg_pool2d(v, 112), lambda v: nnf.avg_pool2d(v, 112), x
        )
    graph.check(y, target=host, options=HALF)


@pytest.mark.parametrize("depth", [1024, 4096])
def test_long_half_precision_sums_are_rounded_once(depth: int, host: Target) -> None:
    """Summed in half precision they are off by 1 % of the largest result."""
    graph = Graph()
    weight = graph.constant(graph.random(depth, 17, scale=depth**-0.5))
    y = graph.apply(relax.op.matmul, torch.matmul, graph.input(7, depth), weight)
    ran = graph.check(y, target=host, options=HALF)
    assert len(ran.taken_by("matmul")) == 1


def test_integers_beside_half_precision_are_exact(host: Target) -> None:
    graph = Graph()
    x = graph.conv2d(graph.input(1, 3, 5, 5), 7)
    index = graph.input_of(torch.tensor([5, 0, 3]))
    moved = graph.add(index, graph.constant(torch.tensor([1, 2, 1 << 40])))
    bytes_ = graph.input_of(torch.arange(-9, 9, dtype=torch.int8))
    limit = graph.constant(torch.full((18,), 3, dtype=torch.int8))
    small = graph.apply(relax.op.minimum, torch.minimum, bytes_, limit)
    graph.check(x, moved, small, target=host, options=HALF)


def test_double_precision_weights_are_not_narrowed(host: Target) -> None:
    graph = Graph()
    x = graph.input_of(graph.random(3, 5, 9, 7).double())
    weight = graph.constant(graph.random(7, 5, 3, 3).double() / 3)
    y = graph.apply(relax.op.nn.conv2d, nnf.conv2d, x, weight)
    ran = graph.check(y, target=host)
    assert abs(ran.outputs[0] - y.value.numpy()).max() < 1e-12
