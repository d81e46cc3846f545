"""Networks on channel blocks: right results, conversions only where they must be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as nnf
import tvm
from tvm import relax

from support.paired_graph import Graph, Node
from tvmscope.compiler.rewrites.cpu.block_layout import block_layout
from tvmscope.core.target import Target

CHANNELS = (7, 16, 31, 32)


def image(graph: Graph, channels: int) -> Node:
    """An image in channel blocks."""
    return graph.conv2d(graph.input(3, 5, 9, 7), channels, 1)


def mean(graph: Graph, x: Node, *, keep: bool) -> Node:
    return graph.apply(lambda v: relax.op.mean(v, [2, 3], keep), lambda v: v.mean((2, 3), keep), x)


def concat(graph: Graph, axis: int, *parts: Node) -> Node:
    return graph.apply(
        lambda *v: relax.op.concat(list(v), axis), lambda *v: torch.cat(v, axis), *parts
    )


def linear(graph: Graph, x: Node, outputs: int) -> Node:
    weight = graph.constant(graph.random(x.value.shape[-1], outputs, scale=0.2))
    return graph.bias(graph.apply(relax.op.matmul, torch.matmul, x, weight))


def test_a_network_stays_in_blocks_from_stem_to_head(host: Target, narrow: Target) -> None:
    for target in (host, narrow):
        graph = Graph()
        x = graph.conv2d(graph.input(3, 3, 29, 23), 17, 7, stride=2, padding=3)
        x = graph.apply(
            lambda v: relax.op.nn.max_pool2d(v, 3, 2, 1),
            lambda v: nnf.max_pool2d(v, 3, 2, 1),
            graph.relu(graph.bias(x)),
        )
        x = graph.relu(graph.add(graph.bias(graph.conv2d(x, 17, padding=1)), x))
        x = graph.relu(graph.bias(graph.conv2d(x, 31, stride=2)))
        ran = graph.check(linear(graph, mean(graph, x, keep=False), 5), target=target)
        assert ran.conversions == 0
        assert (ran.convolutions, len(ran.taken_by("matmul"))) == (3, 1)


@pytest.mark.parametrize("channels", CHANNELS)
def test_a_gate_per_channel_stays_in_blocks(channels: int, host: Target) -> None:
    graph = Graph()
    x = image(graph, channels)
    gate = graph.relu(graph.bias(graph.conv2d(mean(graph, x, keep=True), 3, 1)))
    gate = graph.bias(graph.conv2d(gate, channels, 1))
    gate = graph.apply(relax.op.sigmoid, torch.sigmoid, gate)
    ran = graph.check(graph.conv2d(graph.multiply(x, gate), 16), target=host)
    assert (ran.convolutions, ran.conversions) == (4, 1)


@pytest.mark.parametrize("channels", CHANNELS)
def test_a_result_can_be_used_twice_and_returned(channels: int, host: Target) -> None:
    graph = Graph()
    x = graph.relu(image(graph, channels))
    y = graph.add(graph.conv2d(x, channels, padding=1), x)
    ran = graph.check(y, x, mean(graph, x, keep=True), target=host)
    assert ran.convolutions == 2


@pytest.mark.parametrize("channels", [(16, 32), (16, 16), (48, 16, 32)])
def test_whole_blocks_are_joined_in_blocks(channels: tuple[int, ...], host: Target) -> None:
    graph = Graph()
    x = graph.input(3, 5, 9, 7)
    parts = [graph.conv2d(x, c, 1 + 2 * i, padding=i) for i, c in enumerate(channels)]
    ran = graph.check(graph.conv2d(concat(graph, 1, *parts), 16), target=host)
    assert ran.taken_by("movement") == ["concatenate"]
    assert ran.conversions == 1


@pytest.mark.parametrize(("axis", "channels"), [(2, (16, 16)), (-1, (7, 7)), (0, (32, 32))])
def test_other_joins_are_done_on_plain_data(
    axis: int, channels: tuple[int, ...], host: Target
) -> None:
    graph = Graph()
    x = graph.input(3, 5, 9, 7)
    parts = [graph.conv2d(x, c, 1 + 2 * i, padding=i) for i, c in enumerate(channels)]
    ran = graph.check(graph.conv2d(concat(graph, axis, *parts), 7), target=host)
    assert ran.convolutions == 3
    assert any("concatenate" in kernel for kernel in ran.taken_by("movement"))


def test_a_value_joined_with_itself_is_right(host: Target) -> None:
    graph = Graph()
    x = image(graph, 16)
    graph.check(graph.conv2d(concat(graph, 1, x, x), 7), target=host)


def test_permutes_around_a_convolution_are_right(host: Target) -> None:
    graph = Graph()
    x = graph.apply(
        lambda v: relax.op.permute_dims(v, [0, 3, 1, 2]),
        lambda v: v.permute(0, 3, 1, 2),
        graph.input(3, 9, 7, 5),
    )
    y = graph.apply(
        lambda v: relax.op.permute_dims(v, [0, 2, 3, 1]),
        lambda v: v.permute(0, 2, 3, 1),
        graph.relu(graph.conv2d(x, 31)),
    )
    assert graph.check(y, target=host).convolutions == 1


def test_split_channels_and_a_flattened_head_are_right(host: Target) -> None:
    graph = Graph()
    x = image(graph, 14)
    first = graph.apply(
        lambda v: relax.TupleGetItem(relax.op.split(v, 2, 1), 0), lambda v: v.chunk(2, 1)[0], x
    )
    y = graph.conv2d(first, 5)
    graph.check(linear(graph, graph.reshape(y, 3, 5 * 7 * 5), 11), target=host)


SHAPES = {
    "a scalar": (),
    "a vector of one": (1,),
    "along the columns": (7,),
    "channels without a batch": (17, 1, 1),
    "channels": (1, 17, 1, 1),
    "an image": (1, 17, 9, 7),
    "a plane": (1, 1, 9, 7),
    "a gate": (3, 17, 1, 1),
    "a column of each": (3, 17, 9, 1),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_every_broadcast_is_right(name: str, constant: bool, host: Target) -> None:
    graph = Graph()
    x = image(graph, 17)
    value = graph.random(*SHAPES[name])
    y = graph.constant(value) if constant else graph.input_of(value)
    y = graph.apply(relax.op.subtract, torch.sub, y, x)
    graph.check(graph.conv2d(y, 3), target=host)


def test_the_filling_of_a_block_is_never_divided(host: Target) -> None:
    """In the filled-up channels x / y is 0 / 0, not a number, whatever weight meets it next."""
    graph = Graph()
    x = image(graph, 7)
    y = graph.add(graph.relu(x), graph.constant(torch.ones(1, 7, 1, 1)))
    y = graph.apply(relax.op.divide, torch.div, x, y)
    graph.check(graph.conv2d(y, 5), target=host)


def test_a_function_without_convolutions_is_left_alone(host: Target) -> None:
    graph = Graph()
    before = graph.module(graph.relu(graph.input(3, 17, 9, 7)))
    tvm.ir.assert_structural_equal(block_layout(host)(before), before)


def test_a_function_that_checks_shapes_at_run_time_is_left_alone(host: Target) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=4))
    weight = relax.const(Graph().random(7, 5, 3, 3).numpy())
    with builder.function("main", [x]):
        with builder.dataflow():
            known = builder.match_cast(x, relax.TensorType((3, 5, 9, 7), "float32"))
            result = builder.emit_output(relax.op.nn.conv2d(known, weight))
        builder.emit_func_output(result)
    before = builder.get()
    tvm.ir.assert_structural_equal(block_layout(host)(before), before)
