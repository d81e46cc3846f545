"""Is the measuring honest? One runner against itself, and against itself with 8 % more work.

    python benchmarks/aa.py                        a small numpy network
    python benchmarks/aa.py --artifact DIR --model DIR   a compiled model

Of 40 comparisons of a runner with itself at most 3 may be called faster or slower, of 40 with a
planted slowdown of 8 % at least 36 must be called, and none may take two minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.core.comparison import Comparison, compare
from tvmscope.core.measurement import Measurement, Result
from tvmscope.core.options import MeasureOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.row import RowKey, Task, Variant
from tvmscope.machine.load import disturbances, snapshot
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker

PLANTED = 0.08
LIMIT_S = 120.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS")


@dataclass(frozen=True)
class Request:
    """What both workers load; `extra` is the share of planted work."""

    artifact: str | None
    folder: str
    threads: int
    extra: float = 0.0


class NumpyRunner:
    """Four dense layers: a few milliseconds of matrix products and element-wise work."""

    def __init__(self) -> None:
        self.settings = {"workload": "numpy"}
        rng = np.random.default_rng(0)
        self._x = rng.standard_normal((128, 1024), dtype=np.float32)
        self._weights = [rng.standard_normal((1024, 1024), dtype=np.float32) / 32 for _ in range(4)]

    def run(self) -> None:
        x = self._x
        for w in self._weights:
            x = np.tanh(x @ w)

    def outputs(self) -> dict[str, Any]:
        return {}


class PlantedRunner:
    """Another runner plus a fixed amount of work, calibrated to a share of its time."""

    def __init__(self, inner: Any, share: float) -> None:
        self._inner = inner
        self.settings = dict(inner.settings) | {"planted": f"{share:.0%}"}
        self._data = np.ones(4096, dtype=np.float32)
        # The fastest of many, in turns: on a busy machine a median holds others' work as well.
        pairs = [(_seconds(inner.run), _seconds(self._work, 200) / 200) for _ in range(100)]
        run_s, unit_s = (min(times) for times in zip(*pairs, strict=True))
        self._units = max(1, round(share * run_s / unit_s))

    def _work(self) -> None:
        np.multiply(self._data, 1.0, out=self._data)

    def run(self) -> None:
        self._inner.run()
        for _ in range(self._units):
            self._work()

    def outputs(self) -> dict[str, Any]:
        return dict(self._inner.outputs())


def _seconds(work: Any, times: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - start


def load(request: Request) -> Any:
    """Called in the worker."""
    inner = NumpyRunner() if request.artifact is None else _load_artifact(request)
    return PlantedRunner(inner, request.extra) if request.extra else inner


def _load_artifact(request: Request) -> Any:
    from tvmscope.backends.api import LoadRequest
    from tvmscope.backends.tvm import load as load_tvm

    return load_tvm(
        LoadRequest(
            folder=request.folder,
            device="cpu",
            precision=FLOAT32,
            threads=request.threads,
            artifact=request.artifact,
        )
    )


def comparison(first: Request, second: Request, options: MeasureOptions) -> Comparison:
    """`first` against `second`, each in a worker of its own."""
    env = dict.fromkeys(THREAD_VARIABLES, str(first.threads))
    with Worker("first", env=env) as a, Worker("second", env=env) as b:
        lanes = []
        for name, worker, request in (("first", a, first), ("second", b, second)):
            worker.load(here(load), request)
            worker.pause()
            lanes.append(Lane(name, worker))
        before = snapshot((a.pid, b.pid))
        for _ in interleave(lanes, options):
            pass
        for text in disturbances(before, snapshot((a.pid, b.pid))):
            print(f"    {text}", file=sys.stderr)
        for lane in lanes:
            if lane.failure is not None:
                raise lane.failure
        return compare(_result(lanes[0], first.threads), _result(lanes[1], first.threads))


def _result(lane: Lane, threads: int) -> Result:
    assert lane.pace is not None
    variant = Variant(backend=lane.name, family="peer")
    key = RowKey(variant=variant, target="cpu", device="cpu")
    task = Task(model="aa", digest="aa", threads=threads, key=key)
    measurement = Measurement(rounds_s=tuple(lane.rounds_s), loops=lane.pace.loops)
    return Result(task=task, status="ok", measurement=measurement)


def study(name: str, pair: tuple[Request, Request], count: int, options: MeasureOptions) -> Study:
    """`count` comparisons, each with its own seed; every other one with the sides swapped."""
    verdicts: Counter[str] = Counter()
    longest_s = 0.0
    for number in range(count):
        first, second = pair if number % 2 == 0 else pair[::-1]
        start = time.monotonic()
        found = comparison(first, second, replace(options, seed=number))
        taken_s = time.monotonic() - start
        longest_s = max(longest_s, taken_s)
        right = "slower" if first.extra else "faster"
        verdicts[found.verdict] += 1
        verdicts["right"] += found.verdict == right
        low, high = found.ci95 or (float("nan"), float("nan"))
        print(
            f"{name} {number + 1:>3}/{count}  {found.speedup:.4f} [{low:.4f}, {high:.4f}]  "
            f"{found.verdict:<9}  {taken_s:.1f} s",
            file=sys.stderr,
        )
    return Study(name, verdicts, count, longest_s)


@dataclass(frozen=True)
class Study:
    """The verdicts of a number of like comparisons."""

    name: str
    verdicts: Counter[str]
    count: int
    longest_s: float

    def line(self, right: str) -> str:
        counts = "  ".join(f"{self.verdicts[v]:>9}" for v in ("faster", "slower", "undecided"))
        return f"{self.name:<12}{counts}  {right:>9}  {self.longest_s:>9.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--duration", type=float, default=6.0, help="seconds per side")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--artifact", type=Path, help="an artifact folder")
    parser.add_argument("--model", type=Path, help="the prepared model's folder, for its inputs")
    given = parser.parse_args()
    if given.artifact and not given.model:
        parser.error("--artifact needs --model, the folder with its inputs.npz")
    artifact = str(given.artifact) if given.artifact else None
    plain = Request(artifact, str(given.model or ""), given.threads)
    options = MeasureOptions(duration_s=given.duration)
    same = study("A/A", (plain, plain), given.count, options)
    other = study("planted 8 %", (plain, replace(plain, extra=PLANTED)), given.count, options)
    called = same.count - same.verdicts["undecided"]
    print(f"{'':<12}{'faster':>9}  {'slower':>9}  {'undecided':>9}  {'right':>9}  {'longest s':>9}")
    print(same.line("-"))
    print(other.line(str(other.verdicts["right"])))
    honest = called <= 3 / 40 * same.count
    sharp = other.verdicts["right"] >= 36 / 40 * other.count
    quick = max(same.longest_s, other.longest_s) < LIMIT_S
    print(
        f"A/A called {called} of {same.count}: {'ok' if honest else 'TOO MANY'} (at most 3 of 40)"
    )
    print(f"planted called rightly {other.verdicts['right']} of {other.count}: ", end="")
    print("ok" if sharp else "TOO FEW", "(at least 36 of 40)")
    return 0 if honest and sharp and quick else 1


if __name__ == "__main__":
    # Workers unpickle `Request` by the module's own name, not as `__main__`.
    import aa

    sys.exit(aa.main())
