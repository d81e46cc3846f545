"""The rule for dense convolutions: right on odd shapes, and only taken where it applies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as nnf
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.convolutions import Convolution, convolutions
from support.paired_graph import DIRECT, Graph, drawn
from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target


def check(case: Convolution, target: Target) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph), target=target, options=DIRECT)
    # The convolution in front may be the same kernel by chance; nothing else computes.
    assert len(ran.taken_by("conv2d")) in ((1, 2) if case.blocked else (1,))
    # Blocks of a 1x1 image are plain data of another shape.
    assert set(ran.taken_by("fallback")) <= {"reshape"}
    assert ran.taken_by(None) == []


@drawn(16)
@given(convolutions())
def test_drawn_convolutions_match_pytorch(host: Target, case: Convolution) -> None:
    check(case, host)


@drawn(8)
@given(convolutions())
def test_drawn_convolutions_match_pytorch_with_fewer_registers(
    narrow: Target, case: Convolution
) -> None:
    check(case, narrow)


@drawn(8)
@given(convolutions())
def test_drawn_convolutions_match_pytorch_with_more_multipliers(
    wide: Target, case: Convolution
) -> None:
    check(case, wide)


@pytest.mark.slow
@drawn(150)
@given(convolutions())
def test_many_drawn_convolutions_match_pytorch(
    host: Target, narrow: Target, wide: Target, case: Convolution
) -> None:
    check(case, host)
    check(case, narrow)
    check(case, wide)


ODD = {
    "1x1 image": Convolution(3, 17, 31, (1, 1), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True, ()),
    "kernel larger than image": Convolution(
        1, 5, 7, (2, 3), (7, 7), (1, 1), (3, 3, 3, 3), (1, 1), False, ("bias",)
    ),
    "dilated and strided": Convolution(
        3, 7, 13, (23, 29), (3, 5), (2, 3), (2, 0, 1, 3), (2, 2), True, ("bias", "relu")
    ),
    "one channel to one": Convolution(
        3, 1, 1, (5, 13), (2, 2), (1, 1), (0, 0, 0, 0), (1, 1), True, ("gate",)
    ),
    "prime channels and a residual": Convolution(
        3, 31, 17, (11, 19), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True, ("residual", "relu")
    ),
    "wide row": Convolution(
        1, 3, 16, (3, 113), (3, 3), (1, 2), (1, 1, 1, 1), (1, 1), False, ("bias", "silu")
    ),
    "many channels": Convolution(
        1, 192, 48, (7, 7), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), True, ("bias", "clip")
    ),
    "tiles finished in registers": Convolution(
        3, 24, 40, (5, 28), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), True, ("bias", "residual", "clip")
    ),
    "the same with a stride and plain data": Convolution(
        2, 7, 17, (9, 55), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), False, ("gate",)
    ),
    "several tiles in a row that is cropped": Convolution(
        1, 24, 17, (3, 29), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), True, ("bias", "silu")
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_match_pytorch(name: str, host: Target) -> None:
    check(ODD[name], host)


TILES = {
    "pixels counted on over the ends of rows": (
        Convolution(
            3, 24, 96, (7, 7), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), True, ("bias", "gate")
        ),
        ("1x7", "2x5", "6x4", "3x6"),
    ),
    "rows and columns that are cropped": (
        Convolution(2, 24, 64, (9, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True, ("residual",)),
        ("1x2x3", "2x1x11", "4x4x1", "2x2x4"),
    ),
    "a stride without padding": (
        Convolution(1, 7, 48, (9, 13), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), False, ("silu",)),
        ("3x1x7", "1x2x2", "3x3x2"),
    ),
    "pixels that a stride leaves": (
        Convolution(2, 24, 48, (9, 13), (1, 1), (2, 3), (0, 0, 0, 0), (1, 1), True, ("bias",)),
        ("3x5", "1x6", "3x2x3"),
    ),
    "sums that wait for the next chunk": (
        Convolution(1, 480, 32, (6, 10), (3, 3), (1, 1), (0, 1, 2, 0), (1, 1), True, ("relu",)),
        ("1x2x3", "2x1x5"),
    ),
}


@pytest.mark.parametrize("name", TILES)
def test_every_form_of_tile_matches_pytorch(name: str, wide: Target) -> None:
    case, tiles = TILES[name]
    for number, tile in enumerate(tiles):
        forced: dict[str, int | str] = {"tile": tile, "group": 1 + 2 * number, "prefetch": 1}
        graph = Graph()
        options = CompileOptions(overrides={"winograd": False, "params": forced})
        ran = graph.check(case.build(graph), target=wide, options=options)
        assert ran.taken_by("conv2d")


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_that_fill_no_block_are_taken_and_right(groups: int, host: Target) -> None:
    graph = Graph()
    x = graph.conv2d(graph.input(3, 5, 9, 7), 4 * groups, 1)
    ran = graph.check(
        graph.relu(graph.bias(graph.conv2d(x, 6 * groups, groups=groups))), target=host
    )
    assert len(ran.taken_by("conv2d")) == 2
    assert ran.taken_by("depthwise") == []
    assert ran.taken_by("fallback") == []


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs"),
    [
        (3, 16, 32),
        (8, 4, 4),
        (4, 8, 12),
        (16, 1, 2),
        (2, 32, 48),
        (13, 8, 8),
        (3, 24, 24),
        (5, 7, 9),
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_grouped_convolutions_match_pytorch(
    groups: int, inputs: int, outputs: int, stride: int, host: Target
) -> None:
    graph = Graph()
    x = graph.conv2d(graph.input(2, 5, 9, 13), inputs * groups, 1)
    y = graph.conv2d(x, outputs * groups, groups=groups, stride=stride, padding=1)
    ran = graph.check(graph.relu(graph.bias(y)), target=host)
    assert len(ran.taken_by("conv2d")) == 2
    assert ran.taken_by("fallback") == []


def check_grouped(case: Convolution, target: Target) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph), target=target, options=DIRECT)
    # The convolution in front is another; both may be the same kernel by chance.
    assert len(ran.taken_by("conv2d")) in ((1, 2) if case.blocked else (1,))
    assert not any("conv2d" in kernel for kernel in ran.taken_by("fallback"))


@st.composite
def grouped(draw: st.DrawFn) -> Convolution:
    """Several groups of few channels, in and out."""
    case = draw(convolutions())
    sizes = st.sampled_from((1, 2, 3, 4, 7, 8, 16))
    return replace(
        case,
        groups=draw(st.sampled_from((2, 3, 4, 8, 16))),
        channels=draw(sizes),
        outputs=draw(sizes.filter(lambda n: n > 1)),  # one output of one channel is depthwise
        size=tuple(min(s, max(13, (k - 1) * d + 1)) for s, k, d in zip(
            case.size, case.kernel, case.dilation, strict=True
        )),
    )  # fmt: skip


@drawn(10)
@given(grouped())
def test_drawn_grouped_convolutions_match_pytorch(host: Target, case: Convolution) -> None:
    check_grouped(case, host)


@pytest.mark.slow
@drawn(100)
@given(grouped())
def test_many_drawn_grouped_convolutions_match_pytorch(
    host: Target, narrow: Target, case: Convolution
) -> None:
    check_grouped(case, host)
    check_grouped(case, narrow)


@pytest.mark.parametrize("machine", ["host", "narrow", "wide"])
def test_a_gate_of_one_pixel_is_spread_over_its_image_without_writing_that_out(
    machine: str, request: pytest.FixtureRequest
) -> None:
    target = request.getfixturevalue(machine)
    graph = Graph()
    x = graph.conv2d(graph.input(1, 3, 37, 41), 48, 1)
    mean = graph.apply(
        lambda v: relax.op.mean(v, [2, 3], keepdims=True), lambda v: v.mean((2, 3), True), x
    )
    squeezed = graph.relu(graph.bias(graph.conv2d(mean, 8, 1)))
    gate = graph.apply(relax.op.sigmoid, torch.sigmoid, graph.conv2d(squeezed, 48, 1))
    result = graph.multiply(x, gate)
    graph.check(result, target=target)
    tvm_target = tvm.target.Target(targets.to_tvm(target))
    module = pipeline.run(graph.module(result), target, tvm_target, CompileOptions()).module
    assert not any(f"T.unroll({n})" in module.script() for n in (37, 41, 37 * 41))


def test_computed_weights_are_declined_and_right(host: Target) -> None:
    graph = Graph()
    y = graph.apply(
        relax.op.nn.conv2d, nnf.conv2d, graph.input(3, 5, 9, 7), graph.input(7, 5, 3, 3)
    )
    ran = graph.check(y, target=host)
    assert ran.taken_by("conv2d") == []
    assert ran.taken_by("fallback") == ["conv2d"]


def test_channels_last_layout_is_declined_and_right(host: Target) -> None:
    graph = Graph()
    weight = graph.constant(graph.random(3, 3, 5, 7, scale=0.1))
    y = graph.apply(
        lambda v, w: relax.op.nn.conv2d(v, w, data_layout="NHWC", kernel_layout="HWIO"),
        lambda v, w: nnf.conv2d(v.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)).permute(0, 2, 3, 1),
        graph.input(3, 9, 7, 5),
        weight,
    )
    assert graph.check(y, target=host).taken_by("conv2d") == []


def test_integer_convolution_is_declined_and_exact(host: Target) -> None:
    graph = Graph()
    x = torch.arange(3 * 5 * 9 * 7, dtype=torch.int8).reshape(3, 5, 9, 7)
    weight = torch.arange(7 * 5 * 3 * 3, dtype=torch.int8).reshape(7, 5, 3, 3)
    y = graph.apply(
        lambda v, w: relax.op.nn.conv2d(v, w, out_dtype="int32"),
        lambda v, w: nnf.conv2d(v.double(), w.double()).to(torch.int32),
        graph.input_of(x),
        graph.constant(weight),
    )
    assert graph.check(y, target=host).taken_by("conv2d") == []
