"""Convolutions on odd shapes, drawn by hypothesis for the tests of the CPU rules."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from support.paired_graph import Graph, Node

CHANNELS = (1, 2, 3, 5, 7, 16, 17, 24, 31, 32, 48, 64)
EPILOGUES = ("bias", "relu", "residual", "clip", "silu", "gate")


@dataclass(frozen=True)
class Convolution:
    """One convolution with what surrounds it."""

    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    blocked: bool
    """Whether its data comes from another convolution, in channel blocks."""
    epilogues: tuple[str, ...]
    groups: int = 1
    """`channels` and `outputs` are those of one group."""

    def build(self, graph: Graph, *, depthwise: bool = False) -> Node:
        """The graph's result."""
        channels = self.channels * self.groups
        x = graph.input(self.batch, channels, *self.size)
        if self.blocked:
            x = graph.conv2d(x, channels, 1)
        x = graph.conv2d(
            x,
            channels if depthwise else self.outputs * self.groups,
            self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=channels if depthwise else self.groups,
        )
        for name in self.epilogues:
            x = graph.epilogue(x, name)
        return x


@st.composite
def convolutions(draw: st.DrawFn, smallest_channels: int = 1) -> Convolution:
    """Any convolution whose result is not empty."""

    def pair(values: st.SearchStrategy[int]) -> tuple[int, int]:
        return draw(values), draw(values)

    channels = st.sampled_from([c for c in CHANNELS if c >= smallest_channels])
    kernel = pair(st.sampled_from((1, 2, 3, 5, 7)))
    dilation = pair(st.sampled_from((1, 2)))
    top, left, bottom, right = draw(st.tuples(*[st.integers(0, 3)] * 4))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    smallest = (max(1, spans[0] - top - bottom), max(1, spans[1] - left - right))
    return Convolution(
        batch=draw(st.sampled_from((1, 3))),
        channels=draw(channels),
        outputs=draw(channels),
        size=(draw(st.integers(smallest[0], 29)), draw(st.integers(smallest[1], 29))),
        kernel=kernel,
        stride=pair(st.integers(1, 3)),
        padding=(top, left, bottom, right),
        dilation=dilation,
        blocked=draw(st.booleans()),
        epilogues=tuple(draw(st.lists(st.sampled_from(EPILOGUES), max_size=3))),
    )
