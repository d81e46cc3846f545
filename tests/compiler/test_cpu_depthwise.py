"""The rule for depthwise convolutions: right on odd shapes, and only taken where it applies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from support.convolutions import Convolution, convolutions
from support.paired_graph import Graph, drawn
from tvmscope.core.target import Target


def check(case: Convolution, target: Target) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph, depthwise=True), target=target)
    assert len(ran.taken_by("depthwise")) == 1
    assert len(ran.taken_by("conv2d")) == case.blocked
    # Blocks of a 1x1 image are plain data of another shape.
    assert set(ran.taken_by("fallback")) <= {"reshape"}
    assert ran.taken_by(None) == []


several = convolutions(smallest_channels=2)


@drawn(10)
@given(several)
def test_drawn_convolutions_match_pytorch(host: Target, case: Convolution) -> None:
    check(case, host)


@drawn(6)
@given(several)
def test_drawn_convolutions_match_pytorch_with_fewer_registers(
    narrow: Target, case: Convolution
) -> None:
    check(case, narrow)


@pytest.mark.slow
@drawn(100)
@given(several)
def test_many_drawn_convolutions_match_pytorch(
    host: Target, narrow: Target, case: Convolution
) -> None:
    check(case, host)
    check(case, narrow)


PLAIN = Convolution(3, 17, 17, (9, 13), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False, ("bias",))
ODD = {
    "prime channels": PLAIN,
    "1x1 image": replace(PLAIN, size=(1, 1), blocked=True),
    "dilated and strided": replace(PLAIN, kernel=(5, 3), stride=(2, 3), dilation=(2, 2)),
    "one-sided padding": replace(PLAIN, padding=(0, 3, 2, 0), epilogues=("silu",)),
    "wide row": replace(PLAIN, channels=5, size=(3, 113), epilogues=("residual", "clip")),
    "tiles finished in registers": Convolution(
        3, 24, 24, (7, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), True, ("bias", "clip")
    ),
    "the same with a stride": Convolution(
        1, 17, 17, (9, 56), (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), True, ("bias", "silu")
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_match_pytorch(name: str, host: Target) -> None:
    check(ODD[name], host)


@pytest.mark.parametrize("channels", [7, 16])
def test_channel_multiplier_is_no_depthwise_convolution(channels: int, host: Target) -> None:
    graph = Graph()
    x = graph.conv2d(graph.input(3, channels, 9, 7), 2 * channels, groups=channels)
    ran = graph.check(graph.relu(graph.bias(x)), target=host)
    assert ran.taken_by("depthwise") == []
    # Groups that fill a block are merged into a dense convolution, others computed one by one.
    assert len(ran.taken_by("conv2d")) == 1


def test_one_channel_is_a_dense_convolution(host: Target) -> None:
    graph = Graph()
    ran = graph.check(graph.conv2d(graph.input(3, 1, 9, 7), 1, groups=1), target=host)
    assert (len(ran.taken_by("conv2d")), ran.taken_by("depthwise")) == (1, [])
