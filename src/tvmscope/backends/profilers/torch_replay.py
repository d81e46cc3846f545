"""Kernel times of graphs, compiled code and other libraries, which run no operators of the model.

The device's records name kernels only. A recorded graph repeats the kernels of the eager run from
which it was recorded, and the operators of that run are known. Other code keeps the order of
convolutions and matrix products: each is found by its position among them, and the kernels after it
belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.backends.api import Span, Trace
from tvmscope.backends.profilers import cupti
from tvmscope.backends.profilers.torch import TorchProfiler, kind_of
from tvmscope.core.prepared import operators
from tvmscope.errors import RunError
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvmscope.backends.torch_module import TorchRunner

Sources = list[tuple[str, ...]]
Attribute = Callable[[Sequence[str]], Sources]
"""The source operators of each kernel of a run, by all their names in order."""
_CONVOLUTIONS = frozenset(
    {"conv1d", "conv2d", "conv3d", "convolution", "conv_transpose2d", "Conv", "ConvTranspose"}
)
_PRODUCTS = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention"}
    | {"MatMul", "Gemm"}
)
"""PyTorch's operators and ONNX's."""
_POINTWISE = re.compile(
    r"^triton_(poi|red|per)|split_?k_?reduce|nchwtonhwc|nhwctonchw|offsets", re.IGNORECASE
)
_CONVOLVES = re.compile(r"conv|fprop|dgrad|implicit|winograd|cudnn", re.IGNORECASE)
_MULTIPLIES = re.compile(
    r"gemm|gemv|xmma|cutlass|triton_tem|flash|fmha|attention|nvjet|cublas", re.IGNORECASE
)


class ReplayProfiler:
    """A runner's own call, recorded by the device."""

    how = cupti.HOW

    def __init__(self, torch: Any, run: Callable[[], Any], attribute: Attribute) -> None:
        self._attribute = attribute
        self._recorder = cupti.Recorder(torch, run)
        if not cupti.is_readable(torch, run):
            raise RunError(msg("PyTorch's profiler sees no kernels here: CUPTI cannot be used"))

    def run(self) -> float:
        """Run once under the profiler."""
        return self._recorder.run()

    def traces(self) -> list[Trace]:
        """Return a trace per run."""
        return [self._trace(recording) for recording in self._recorder.recordings]

    def _trace(self, recording: cupti.Recording) -> Trace:
        found = recording.activities
        sources = self._attribute([a.name for a in found])
        spans = tuple(
            Span(
                a.name,
                ops,
                (a.end - a.start) * 1e-9,
                "layout" if a.moves_only else "compute",
                resources=a.resources,
            )
            for a, ops in zip(found, sources, strict=True)
        )
        times = recording.times
        return Trace(spans, times.gap_s + times.edge_s, times)


def of_graph(runner: TorchRunner, folder: Path, eager: Callable[[], Any]) -> ReplayProfiler:
    """Find the operators of a graph that was recorded from `eager`."""

    def attribute(names: Sequence[str]) -> Sources:
        return like(launched, names)

    replay = runner.swap(eager)
    try:
        profiler = TorchProfiler(runner, folder)
        profiler.run()
        launched = profiler.launches()
    finally:
        runner.use(replay)
    return ReplayProfiler(runner.torch, runner.run, attribute)


def by_order(torch: Any, run: Callable[[], Any], folder: Path) -> ReplayProfiler:
    """Find the operators of code that keeps their order: of torch.compile, of ONNX Runtime."""
    names = operators.read(folder).names
    return ReplayProfiler(torch, run, lambda kernels: by_anchors(kernels, names))


def like(known: Sequence[tuple[str, tuple[str, ...]]], names: Sequence[str]) -> Sources:
    """Assign the operators of another run with the same kernels in the same order; else none."""
    found: Sources = [()] * len(names)
    matcher = SequenceMatcher(None, [name for name, _ in known], list(names), autojunk=False)
    for block in matcher.get_matching_blocks():
        for i in range(block.size):
            found[block.b + i] = known[block.a + i][1]
    return found


def by_anchors(kernels: Sequence[str], names: Sequence[str]) -> Sources:
    """Assign by the order of heavy kernels if there are as many as heavy operators; else none."""
    for kinds, patterns in (
        (_CONVOLUTIONS | _PRODUCTS, (_CONVOLVES, _MULTIPLIES)),
        (_CONVOLUTIONS, (_CONVOLVES,)),
    ):
        heavy = [i for i, name in enumerate(names) if kind_of(name) in kinds]
        anchors = [i for i, name in enumerate(kernels) if _is_heavy(name, patterns)]
        if heavy and len(heavy) == len(anchors):
            return _segments(kernels, names, anchors, heavy)
    return [()] * len(kernels)


def _is_heavy(name: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return not _POINTWISE.search(name) and any(p.search(name) for p in patterns)


def _segments(
    kernels: Sequence[str], names: Sequence[str], anchors: Sequence[int], heavy: Sequence[int]
) -> Sources:
    """Assign kernels between two heavy kernels to the operators between the two heavy operators."""
    edges = [0, *heavy[1:], len(names)]
    parts = [tuple(names[a:b]) for a, b in pairwise(edges)]
    found: Sources = []
    place = 0
    for i in range(len(kernels)):
        if place + 1 < len(anchors) and i >= anchors[place + 1]:
            place += 1
        found.append(parts[place])
    return found
