"""Channels that a graph only moves: followed by index, copied once in blocks, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, te

from support.graph_passes import const, module, tidy
from support.paired_graph import Graph, Node, Ran, drawn
from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.describe.kernel_work import count
from tvmscope.compiler.kernels import blocked
from tvmscope.compiler.kernels.channels import pick_channels
from tvmscope.compiler.kernels.convolutions import choose, read
from tvmscope.compiler.rewrites.cpu.block_layout import block_layout
from tvmscope.compiler.tunable.knobs import Knobs
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.target import Target

op = relax.op


def image(graph: Graph, channels: int) -> Node:
    """An image in channel blocks."""
    return graph.relu(graph.conv2d(graph.input(3, 5, 9, 7), channels, 1))


def concat(graph: Graph, *parts: Node) -> Node:
    return graph.apply(lambda *v: op.concat(list(v), 1), lambda *v: torch.cat(v, 1), *parts)


def part(graph: Graph, x: Node, begin: int, end: int, step: int = 1) -> Node:
    return graph.apply(
        lambda v: op.strided_slice(v, [1], [begin], [end], [step]),
        lambda v: v[:, begin:end:step],
        x,
    )


def halves(graph: Graph, x: Node, *ends: int) -> list[Node]:
    """The parts of a split; in two where no ends are given."""
    where: int | list[int] = list(ends) or 2
    parts = torch.tensor_split(x.value, where, 1)
    return [
        graph.apply(
            lambda v, i=i: relax.TupleGetItem(op.split(v, where, 1), i),
            lambda v, i=i: torch.tensor_split(v, where, 1)[i],
            x,
        )
        for i in range(len(parts))
    ]


def shuffle(graph: Graph, x: Node, groups: int) -> Node:
    n, c, h, w = x.value.shape
    y = graph.reshape(x, n, groups, c // groups, h, w)
    y = graph.apply(lambda v: op.permute_dims(v, [0, 2, 1, 3, 4]), lambda v: v.transpose(1, 2), y)
    return graph.reshape(y, n, c, h, w)


def take(graph: Graph, x: Node, channels: Sequence[int]) -> Node:
    return graph.apply(
        lambda v: op.take(v, relax.const(list(channels), "int64"), axis=1),
        lambda v: v[:, list(channels)],
        x,
    )


def copies(ran: Ran) -> list[str]:
    return [kernel for kernel in ran.rules if "pick_channels" in kernel]


def unit(graph: Graph, x: Node) -> Node:
    """A unit of ShuffleNetV2."""
    kept, rest = halves(graph, x)
    channels = rest.value.shape[1]
    y = graph.relu(graph.bias(graph.conv2d(rest, channels, 1)))
    y = graph.bias(graph.conv2d(y, channels, padding=1, groups=channels))
    y = graph.relu(graph.bias(graph.conv2d(y, channels, 1)))
    return shuffle(graph, concat(graph, kept, y), 2)


@pytest.mark.parametrize("channels", [14, 34, 58, 64])
def test_shuffled_units_stay_in_blocks(channels: int, host: Target, narrow: Target) -> None:
    for target in (host, narrow):
        graph = Graph()
        x = image(graph, channels)
        for _ in range(3):
            x = unit(graph, x)
        ran = graph.check(graph.conv2d(x, 7, 1), target=target)
        assert ran.conversions == 1, "the result leaves the blocks, nothing else does"
        assert set(copies(ran)) <= set(ran.taken_by("movement"))
        assert ran.taken_by("fallback") == []


@pytest.mark.parametrize("channels", [7, 24, 32])
def test_shuffled_channels_are_read_with_shuffled_weights(channels: int, host: Target) -> None:
    graph = Graph()
    groups = next(n for n in (7, 3, 2) if channels % n == 0)
    x = shuffle(graph, image(graph, channels), groups)
    ran = graph.check(graph.conv2d(x, 17, padding=1), target=host)
    assert (copies(ran), ran.conversions) == ([], 1)


@pytest.mark.parametrize("step", ["depthwise", "grouped", "pool", "mean"])
def test_shuffled_channels_are_copied_for_others(step: str, host: Target) -> None:
    graph = Graph()
    x = shuffle(graph, image(graph, 24), 3)
    steps: dict[str, Callable[[], Node]] = {
        "depthwise": lambda: graph.conv2d(x, 24, groups=24),
        "grouped": lambda: graph.conv2d(x, 24, groups=2),
        "pool": lambda: graph.apply(
            lambda v: op.nn.max_pool2d(v, 3), lambda v: nnf.max_pool2d(v, 3, 1), x
        ),
        "mean": lambda: graph.apply(lambda v: op.mean(v, [2, 3]), lambda v: v.mean((2, 3)), x),
    }
    assert len(copies(graph.check(steps[step](), target=host))) == 1


@pytest.mark.parametrize("channels", [(17, 31), (16, 7), (5, 5, 5)])
def test_unfilled_blocks_are_joined_in_blocks(channels: tuple[int, ...], host: Target) -> None:
    graph = Graph()
    x = graph.input(3, 5, 9, 7)
    parts = [graph.conv2d(x, c, 1 + 2 * i, padding=i) for i, c in enumerate(channels)]
    ran = graph.check(graph.conv2d(concat(graph, *parts), 7), target=host)
    assert len(copies(ran)) == 1
    assert ran.conversions == 1


def test_what_is_joined_and_divided_again_is_not_copied(host: Target) -> None:
    graph = Graph()
    parts = [image(graph, 16), image(graph, 7)]
    first, _ = halves(graph, concat(graph, *parts), 16)
    assert copies(graph.check(graph.conv2d(first, 5), target=host)) == []


def test_moved_channels_that_leave_the_blocks_are_moved_there(host: Target) -> None:
    """One kernel, as without blocks: a copy first would be another."""
    graph = Graph()
    joined = concat(graph, image(graph, 17), image(graph, 14))
    y = graph.apply(lambda v: op.permute_dims(v, [0, 2, 3, 1]), lambda v: v.permute(0, 2, 3, 1),
                    joined)  # fmt: skip
    assert copies(graph.check(y, target=host)) == []


def test_other_slices_and_transposes_are_right(host: Target) -> None:
    graph = Graph()
    x = image(graph, 14)
    rows = graph.apply(lambda v: op.strided_slice(v, [2], [1], [8]), lambda v: v[:, :, 1:8], x)
    turned = graph.apply(
        lambda v: op.permute_dims(v, [0, 1, 3, 2]), lambda v: v.transpose(2, 3), rows
    )
    folded = graph.reshape(turned, 3, 7, 2, 7 * 7, 1)
    merged = graph.reshape(folded, 1, 42, 7, 7)
    ran = graph.check(graph.conv2d(merged, 5), target=host)
    assert copies(ran) == []


def test_a_copy_can_be_read_by_many_and_returned(host: Target) -> None:
    graph = Graph()
    x, y = image(graph, 17), image(graph, 13)
    z = shuffle(graph, concat(graph, x, y, x), 47)
    added = graph.add(graph.conv2d(z, 47, 1), z)
    ran = graph.check(added, z, graph.conv2d(z, 3), target=host)
    assert len(copies(ran)) == 1


def test_half_precision_is_moved(host: Target) -> None:
    graph = Graph()
    x = unit(graph, unit(graph, image(graph, 34)))
    graph.check(graph.conv2d(x, 7, 1), target=host, options=CompileOptions(precision=FLOAT16))


def test_the_moves_can_be_switched_off(host: Target) -> None:
    graph = Graph()
    x = unit(graph, image(graph, 34))
    off = CompileOptions(overrides={"channel_moves": False})
    assert copies(graph.check(graph.conv2d(x, 7, 1), target=host, options=off)) == []


def test_the_pass_makes_one_copy_of_a_join_and_a_slice(host: Target) -> None:
    weight = const(np.ones((17, 5, 1, 1)))

    def before(x: relax.Expr) -> relax.Expr:
        y = op.nn.conv2d(x, weight)
        return op.nn.relu(op.strided_slice(op.concat([y, op.nn.relu(y)], 1), [1], [16], [19]))

    def after(x: relax.Expr) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        asked = read(builder.normalize(op.nn.conv2d(x, weight)))
        assert asked is not None
        made = choose(asked, host, is_blocked=False, winograd=True, knobs=Knobs())
        y = kernel(made.compute, x, const(made.weight), name=made.name, attrs=made.attrs)
        second = builder.emit(op.nn.relu(y))
        pick = partial(pick_channels, picks=[16, 2 * CHANNEL_BLOCK, 2 * CHANNEL_BLOCK + 1])
        picked = kernel(pick, y, second, name="pick_channels")
        return kernel(blocked.from_blocks, builder.emit(op.nn.relu(picked)), 3, name="from_blocks")

    inputs = torch.ones(1, 5, 9, 7)
    made = tidy(block_layout(host)(module(before, inputs)))
    tvm.ir.assert_structural_equal(made, module(after, inputs))


def kernel(compute: Any, *args: Any, name: str, attrs: dict[str, Any] | None = None) -> relax.Expr:
    builder = relax.BlockBuilder.current()
    return builder.emit(
        builder.call_te(compute, *args, primfunc_name_hint=name, primfunc_attrs=attrs)
    )


def test_a_copy_of_channels_is_counted_as_one() -> None:
    x, y = (te.placeholder((1, blocks, 3, 5, 16), name=f"x{blocks}") for blocks in (1, 2))
    work = count(te.create_prim_func([x, y, pick_channels(x, y, picks=[0, 16, 32, 1])]))
    assert (work.flops, work.moves_only) == (None, True)
    assert work.bytes == 4 * 16 * 3 * 5 * (1 + 2 + 1)


@given(data=st.data())
@drawn(12)
def test_drawn_moves_are_right(data: st.DataObject, host: Target) -> None:
    graph = Graph()
    values = [image(graph, data.draw(st.integers(1, 40))) for _ in range(2)]
    for _ in range(data.draw(st.integers(1, 5))):
        x = data.draw(st.sampled_from(values))
        count = x.value.shape[1]
        match data.draw(st.sampled_from(["join", "slice", "split", "take", "shuffle", "conv"])):
            case "join":
                made = [concat(graph, x, data.draw(st.sampled_from(values)))]
            case "slice":
                begin = data.draw(st.integers(0, count - 1))
                step = data.draw(st.integers(1, 3))
                made = [part(graph, x, begin, data.draw(st.integers(begin + 1, count + 2)), step)]
            case "split" if count > 1:
                made = halves(graph, x, data.draw(st.integers(1, count - 1)))
            case "take":
                wanted = st.lists(st.integers(0, count - 1), min_size=1, max_size=20)
                made = [take(graph, x, data.draw(wanted))]
            case "shuffle":
                groups = [n for n in range(1, count + 1) if count % n == 0]
                made = [shuffle(graph, x, data.draw(st.sampled_from(groups)))]
            case _:
                made = [graph.relu(graph.conv2d(x, data.draw(st.integers(1, 20)), 1))]
        values += made
    graph.check(graph.conv2d(values[-1], 5), values[-1], target=host)
