"""The rule for data movement: right on odd shapes, and only taken where elements change places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.paired_graph import Graph, drawn
from tvmscope.core.target import Target

op = relax.op
Pair = tuple[Callable[..., Any], Callable[..., Any]]
EXTENT = st.sampled_from((1, 2, 3, 4, 7, 8, 13, 16, 20, 31, 48, 85))
SHAPES = st.lists(EXTENT, min_size=1, max_size=5).filter(lambda s: torch.Size(s).numel() < 60_000)
IMAGES = st.tuples(st.sampled_from((1, 3)), EXTENT, EXTENT, EXTENT)


def rules(pair: Pair, *inputs: torch.Tensor, target: Target) -> set[str | None]:
    """The rules that took part, after the result has been compared."""
    graph = Graph()
    nodes = [graph.input_of(value) for value in inputs]
    return set(graph.check(graph.apply(*pair, *nodes), target=target).rules.values())


def check_transpose(shape: list[int], order: list[int], target: Target) -> None:
    pair = (lambda v: op.permute_dims(v, order), lambda v: v.permute(order))
    assert rules(pair, torch.randn(shape), target=target) <= {"movement", "fallback"}


@drawn(15)
@given(SHAPES, st.data())
def test_drawn_transposes_match_pytorch(
    host: Target, shape: list[int], data: st.DataObject
) -> None:
    check_transpose(shape, data.draw(st.permutations(range(len(shape)))), host)


@pytest.mark.slow
@drawn(150)
@given(SHAPES, st.data())
def test_many_drawn_transposes_match_pytorch(
    host: Target, narrow: Target, shape: list[int], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    check_transpose(shape, order, host)
    check_transpose(shape, order, narrow)


@pytest.mark.parametrize("shape", [(31, 85), (48, 80), (7, 1024), (1024, 7), (16, 16)])
def test_matrices_are_transposed_by_the_rule(shape: tuple[int, int], host: Target) -> None:
    pair = (op.permute_dims, lambda v: v.T)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int8):
        values = torch.arange(shape[0] * shape[1]).reshape(shape).to(dtype)
        assert rules(pair, values, target=host) == {"movement"}


@drawn(20)
@given(IMAGES, st.tuples(*[st.integers(0, 3)] * 4))
def test_drawn_paddings_match_pytorch(
    host: Target, shape: tuple[int, ...], sides: tuple[int, ...]
) -> None:
    top, left, bottom, right = sides
    widths = [0, 0, 0, 0, top, bottom, left, right]
    pair = (
        lambda v: op.nn.pad(op.nn.relu(v), widths, "constant", 0.5),
        lambda v: nnf.pad(v.relu(), (left, right, top, bottom), value=0.5),
    )
    rules(pair, torch.randn(shape), target=host)


@drawn(20)
@given(IMAGES, st.integers(0, 3), st.lists(EXTENT, min_size=1, max_size=2))
def test_drawn_concatenations_match_pytorch(
    host: Target, shape: tuple[int, ...], axis: int, others: list[int]
) -> None:
    shapes = [shape] + [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in others]
    pair = (lambda *v: op.concat(list(v), axis), lambda *v: torch.cat(v, axis))
    rules(pair, *(torch.randn(s) for s in shapes), target=host)


@drawn(20)
@given(IMAGES, st.integers(0, 1), st.integers(1, 3))
def test_drawn_slices_match_pytorch(
    host: Target, shape: tuple[int, ...], first: int, step: int
) -> None:
    ends = list(shape[2:])
    pair = (
        lambda v: op.strided_slice(v, [2, 3], [0, min(first, ends[1] - 1)], ends, [1, step]),
        lambda v: v[:, :, :, min(first, ends[1] - 1) :: step],
    )
    rules(pair, torch.randn(shape), target=host)


@drawn(15)
@given(IMAGES, st.sampled_from((2, 3)))
def test_drawn_resizes_match_pytorch(host: Target, shape: tuple[int, ...], scale: int) -> None:
    size = (shape[2] * scale, shape[3] * scale)
    nearest = (
        lambda v: op.image.resize2d(
            v, size, layout="NCHW", method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric", rounding_method="floor",
        ),
        lambda v: nnf.interpolate(v, size, mode="nearest"),
    )  # fmt: skip
    linear = (
        lambda v: op.image.resize2d(v, size, layout="NCHW", method="linear"),
        lambda v: nnf.interpolate(v, size, mode="bilinear", align_corners=False),
    )
    for pair in (nearest, linear):
        found = rules(pair, torch.randn(shape), target=host)
        assert found == {"movement"} or 1 in shape


@drawn(15)
@given(EXTENT, EXTENT, st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_drawn_gathers_match_pytorch(
    host: Target, rows: int, columns: int, picked: list[int]
) -> None:
    indices = torch.tensor(picked) % rows
    pair = (lambda v, i: op.take(v, i, axis=0), lambda v, i: v[i])
    rules(pair, torch.randn(rows, columns), indices, target=host)


def test_channels_are_shuffled_in_one_kernel(host: Target) -> None:
    def shuffle(v: Any, reshape: Any, permute: Any) -> Any:
        return reshape(permute(reshape(v, (3, 2, 13, 5, 12)), (0, 2, 1, 3, 4)), (3, 26, 5, 12))

    pair = (
        lambda v: shuffle(v, op.reshape, op.permute_dims),
        lambda v: shuffle(v, torch.reshape, torch.permute),
    )
    assert rules(pair, torch.randn(3, 26, 5, 12), target=host) == {"movement"}


NEAR_MISSES: dict[str, tuple[Pair, tuple[tuple[int, ...], ...]]] = {
    "elements stay where they are": ((op.nn.relu, torch.relu), ((7, 31),)),
    "a broadcast": ((op.add, torch.add), ((7, 31), (31,))),
    "a reduction": ((lambda v: op.sum(v, [0]), lambda v: v.sum(0)), ((7, 31),)),
    "one axis": ((lambda v: op.flip(v, 0), lambda v: v.flip(0)), ((31,),)),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_declined_and_right(name: str, host: Target) -> None:
    pair, shapes = NEAR_MISSES[name]
    assert rules(pair, *(torch.randn(s) for s in shapes), target=host) == {"fallback"}


def test_several_results_are_declined_and_right(host: Target) -> None:
    graph = Graph()
    x = graph.input(7, 30)
    parts = [
        graph.apply(lambda v, i=i: op.split(v, 3, 1)[i], lambda v, i=i: v.chunk(3, 1)[i], x)
        for i in range(3)
    ]
    ran = graph.check(*parts, target=host)
    assert "split" in ran.taken_by("fallback")
