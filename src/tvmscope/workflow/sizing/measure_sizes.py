"""Runs an artifact of several sizes: is each size right, and what does it cost?

A size is timed as users call it, in turns with its kernels called directly, each in a process of
its own. A size without kernels is timed beside the kernels of the next size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.benchmark.verify import mismatch
from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.core.prepared.dynamic import SizeCost
from tvmscope.core.stats import median_s, ratio_interval
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.measure.machine_lock import alone
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker
from tvmscope.messages import Text
from tvmscope.progress import Progress
from tvmscope.runtime import dynamic

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class SizeRequest:
    """What a worker needs to run one size."""

    folder: Path
    """The artifact of several sizes."""
    ready: Path
    """The prepared model of this size: its inputs and reference outputs."""
    threads: int
    direct: bool = False
    """Call the kernels of this size, or of the next that has kernels, instead of the artifact."""


class SizeRunner:
    """A loaded size with its inputs set."""

    def __init__(self, call: Callable[[], Arrays]) -> None:
        self.settings: dict[str, str] = {}
        self._call = call

    def run(self) -> None:
        """Run once; the outputs are on the host when it returns."""
        self._call()

    def outputs(self) -> Arrays:
        """Run once and return the outputs by name."""
        return self._call()


def load(request: SizeRequest) -> SizeRunner:
    """Load the artifact; called in the worker."""
    loaded = dynamic.load(request.folder, request.threads)
    inputs = _read(request.ready / "inputs.npz")
    if not request.direct:
        return SizeRunner(partial(loaded, **inputs))
    size = loaded.size_of(inputs)
    nearest = min(s for s in loaded.parts if s >= size)
    if nearest != size:
        shapes = loaded.dynamic.range.at({n: a.shape for n, a in inputs.items()}, nearest)
        inputs = {name: np.resize(array, shapes[name]) for name, array in inputs.items()}
    return SizeRunner(partial(loaded.parts[nearest], **inputs))


def find_wrong_sizes(folder: Path, cases: Mapping[int, Path], tolerance: float) -> dict[int, Text]:
    """What is wrong with the outputs of sizes with prepared inputs and references."""
    loaded = dynamic.load(folder)
    problems: dict[int, Text] = {}
    for size, ready in cases.items():
        found = loaded(**_read(ready / "inputs.npz"))
        for name, reference in _read(ready / "reference.npz").items():
            if problem := mismatch(found[name], reference, tolerance):
                problems.setdefault(size, problem)
    return problems


def measure_size(
    folder: Path,
    size: int,
    ready: Path,
    *,
    threads: int,
    options: MeasureOptions,
    progress: Progress,
) -> SizeCost:
    """Time one size in turns with its kernels called directly."""
    request = SizeRequest(folder=folder, ready=ready, threads=threads)
    beside = SizeRequest(folder=folder, ready=ready, threads=threads, direct=True)
    with (
        Worker(f"size {size}", timeout_s=options.timeout_s) as whole,
        Worker(f"size {size}, direct", timeout_s=options.timeout_s) as direct,
    ):
        whole.load(here(load), request)
        direct.load(here(load), beside)
        lanes = [Lane(worker.name, worker) for worker in (whole, direct)]
        with alone(progress.note):
            for _ in interleave(lanes, options):
                pass
    for lane in lanes:
        if lane.failure is not None:
            raise lane.failure
    found = ratio_interval(lanes[0].rounds_s, lanes[1].rounds_s)
    limits = (found.lo, found.hi) if found.lo is not None and found.hi is not None else None
    seconds, static_s = (median_s(Measurement(rounds_s=tuple(lane.rounds_s))) for lane in lanes)
    return SizeCost(size=size, seconds=seconds, static_s=static_s, ratio=found.ratio, ci95=limits)


def _read(file: Path) -> Arrays:
    with np.load(file) as archive:
        return {name: archive[name] for name in archive.files}
