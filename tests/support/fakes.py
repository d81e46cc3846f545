"""Runners that sleep, crash, hang, exit, run out of memory or compute nonsense, for the workers."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from support.rows import key
from tvmscope.backends.api import Span, Trace
from tvmscope.benchmark.entry import Entry
from tvmscope.core.row import Task
from tvmscope.errors import BackendUnavailable, RunError, UsageError
from tvmscope.measure import child_progress
from tvmscope.measure.remote import here

ENV = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
OUTPUTS = {"y": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}


class FakeRunner:
    """Sleeps for each run; does what `fault` says on the run number `at` (0: while loading)."""

    def __init__(self, fault: str | None = None, at: int = 0, run_s: float = 1e-3) -> None:
        self.settings = {"fault": fault or "none"}
        self._fault, self._at, self._run_s, self._runs = fault, at, run_s, 0
        if at == 0:
            fail(fault)

    def run(self) -> None:
        self._runs += 1
        if self._runs == self._at:
            fail(self._fault)
        time.sleep(self._run_s)

    def outputs(self) -> dict[str, Any]:
        return {"y": OUTPUTS["y"] + (0.5 if self._fault == "wrong" else 0)}


class FakeBusyRunner(FakeRunner):
    """Computes instead of sleeping."""

    def run(self) -> None:
        until = time.perf_counter() + self._run_s
        while time.perf_counter() < until:
            pass


class FakeDeviceRunner(FakeRunner):
    """Also has a clock on the device."""

    def time_device(self, n: int) -> list[float]:
        return [5e-4] * n


class FakeClockRunner(FakeRunner):
    """One that times itself."""

    def time(self, n: int, loops: int, cold: bool) -> list[float]:
        return [loops + cold / 2] * n


class FakeProfiledRunner(FakeRunner):
    """Also has an instrument: two kernels, with `gap_s` of host time between them."""

    def __init__(self, whole: bool = False, **request: Any) -> None:
        super().__init__(**request)
        self._whole = whole

    def profiler(self) -> FakeProfiler:
        return FakeProfiler(self.run, self._whole)


class FakeProfiler:
    how = "a fake"

    def __init__(self, run: Any, whole: bool) -> None:
        self._run, self._whole, self._runs = run, whole, 0

    def run(self) -> float:
        start = time.perf_counter()
        self._run()
        self._runs += 1
        return time.perf_counter() - start

    def traces(self) -> list[Trace]:
        conv = Span("conv", ("a/conv", "a/relu"), 6e-4, "compute", 1e6, 2e3)
        trace = Trace((conv, Span("copy", (), 1e-4, "layout")), 3e-4)
        return [trace] * (1 if self._whole else self._runs)


def load_profiled(request: dict[str, Any]) -> FakeRunner:
    return FakeProfiledRunner(**request)


def fail(fault: str | None) -> None:
    if fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "hang":
        time.sleep(3600)
    elif fault == "exit":
        os._exit(3)
    elif fault == "memory":
        _exhaust_memory()
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "error":
        raise ValueError("the shapes do not fit\nat all")
    elif fault == "run-error":
        raise RunError("our own words")
    elif fault == "missing":
        raise BackendUnavailable("install it")
    elif fault == "no-extra":
        raise ModuleNotFoundError("No module named 'triton'", name="triton")


def _exhaust_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
    np.ones(1 << 33, dtype=np.uint8)


def load(request: dict[str, Any]) -> FakeRunner:
    return FakeRunner(**request)


def load_busy(request: dict[str, Any]) -> FakeRunner:
    return FakeBusyRunner(**request)


def load_clock(request: dict[str, Any]) -> FakeRunner:
    return FakeClockRunner(**request)


def load_device(request: dict[str, Any]) -> FakeRunner:
    return FakeDeviceRunner(**request)


def add(a: int, b: int = 0) -> int:
    return a + b


def tell_of_steps(count: int) -> int:
    for number in range(count):
        child_progress.tell(number, count, f"step {number}")
    return count


def say_and_exit(text: str, code: int) -> None:
    print(text, file=sys.stderr)
    os._exit(code)


def raise_usage() -> None:
    class SpecialError(UsageError):
        pass

    raise SpecialError("line one\nline two")


def unpicklable() -> Any:
    return lambda: None


def imported() -> list[str]:
    return [name for name in ("tvm", "torch", "numpy") if name in sys.modules]


def task(backend: str, **changes: Any) -> Task:
    row = key(backend, changes.pop("target", "cpu"), changes.pop("precision", "float32"))
    fields = {"model": "m", "digest": "d", "key": row, "threads": 1, "shapes": {"x": (1,)}}
    return Task(**(fields | changes))


def entry(
    backend: str, *, load: Callable[[dict[str, Any]], FakeRunner] = load, **request: Any
) -> Entry:
    return Entry(task=task(backend), load=here(load), request=request, env=ENV)
