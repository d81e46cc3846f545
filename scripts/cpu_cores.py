"""How fast each core of this machine computes at this moment."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tvmscope.core.target import Target
from tvmscope.machine import cpu_features
from tvmscope.profiling import roofs

_PROBES, _PROBE_STEPS = 9, 100_000
"""Runs of a loop of multiply-adds on each core, and its length: 1 ms or so."""


class Cores:
    """The cores of this machine, and how fast each computes now."""

    def __init__(self) -> None:
        self.all = sorted(os.sched_getaffinity(0))
        features = tuple(cpu_features.reported())
        self._target = Target(kind="llvm", arch="native", features=features)
        self._folder = TemporaryDirectory()
        library = roofs._build(self._target, Path(self._folder.name))
        self._run = library.fma_float32
        self._run.restype = ctypes.c_float

    @contextmanager
    def fastest(self, count: int) -> Iterator[str]:
        """Run what follows, its child processes included, on the fastest `count` cores."""
        rates = {core: self.rate_on(core) for core in self.all}
        chosen = sorted(rates, key=rates.__getitem__)[-count:]
        os.sched_setaffinity(0, chosen)
        found, all_of_them = [rates[core] / 1e9 for core in chosen], rates.values()
        try:
            yield (
                f"cores {sorted(chosen)} at {min(found):.0f} to {max(found):.0f} GFLOP/s each; "
                f"fastest over slowest of all {max(all_of_them) / min(all_of_them):.2f}"
            )
        finally:
            os.sched_setaffinity(0, self.all)

    def rate_on(self, core: int) -> float:
        """Return the multiply-adds of a core now, in FLOP/s; the process stays on that core."""
        os.sched_setaffinity(0, {core})
        return self.rate()

    def rate(self) -> float:
        """Return the multiply-adds of the core that this process runs on, now, in FLOP/s."""
        times = []
        for _ in range(_PROBES):
            start = time.perf_counter()
            self._run(ctypes.c_long(_PROBE_STEPS))
            times.append(time.perf_counter() - start)
        lanes = self._target.vector_bits // 32
        return 2.0 * roofs._CHAINS * lanes * _PROBE_STEPS / median(times)
