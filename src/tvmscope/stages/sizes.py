"""Runs an artifact of several sizes to check each size and measure its cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from tvmscope.benchmark.verify import mismatch
from tvmscope.core.prepared.dynamic import SizeCost
from tvmscope.messages import Text
from tvmscope.runtime import dynamic

_ROUNDS = 25
_ROUND_S = 0.01


def examine(
    folder: Path, cases: Mapping[int, Path], tolerance: float
) -> tuple[tuple[SizeCost, ...], dict[int, Text]]:
    """Return the costs of sizes with prepared inputs and references, and their errors.

    A size is timed in turns with the artifact of this size alone, or of the next available one.
    """
    loaded = dynamic.load(folder)
    costs: list[SizeCost] = []
    problems: dict[int, Text] = {}
    for size, ready in cases.items():
        with np.load(ready / "inputs.npz") as archive:
            inputs = {name: archive[name] for name in archive.files}
        found = loaded(**inputs)
        with np.load(ready / "reference.npz") as reference:
            for name in reference.files:
                if problem := mismatch(found[name], reference[name], tolerance):
                    problems.setdefault(size, problem)
        nearest = min(s for s in loaded.parts if s >= size)
        alone = loaded.parts[nearest]
        whole = inputs
        if nearest != size:
            shapes = loaded.dynamic.range.at({n: a.shape for n, a in inputs.items()}, nearest)
            whole = {n: np.resize(array, shapes[n]) for n, array in inputs.items()}
        seconds, static_s = _in_turns(
            partial(loaded, **inputs),
            partial(alone, **whole),
        )
        costs.append(SizeCost(size=size, seconds=seconds, static_s=static_s))
    return tuple(costs), problems


def _in_turns(*runs: Callable[[], object]) -> tuple[float, ...]:
    """Return the seconds of each, the best of many rounds in turns: the machine may be in use."""
    counts = []
    for run in runs:
        start = time.perf_counter()
        run()
        counts.append(max(1, int(_ROUND_S / max(time.perf_counter() - start, 1e-9))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, count, kept in zip(runs, counts, times, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                run()
            kept.append((time.perf_counter() - start) / count)
    return tuple(min(kept) for kept in times)
