"""Kernel times on TVM's virtual machine, through its instrument: a call before and after each.

On a GPU the instrument records CUDA events, so that no call waits for the one before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.backends.profilers.cupti import Activity, Recording
from tvmscope.cuda import driver
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime import load_model
from tvmscope.runtime.artifact import read_kernels
from tvmscope.runtime.loaded_artifact import LoadedArtifact

Mark = tuple[str, bool, Any]
"""A function's name, whether it is about to run, and what the clock gave then."""
Event = tuple[str, bool, int]
"""The same with the time in nanoseconds."""
_KEEP_RUNNING = 0
_BUILT_IN = "vm.builtin."
"""The VM's own functions: allocation, shapes, views. Their time is host time."""


class VmProfiler:
    """Works on an artifact folder alone; `meta.json` and `kernels.json` say what kernels are."""

    def __init__(self, loaded: LoadedArtifact, inputs: list[Any]) -> None:
        artifact = loaded.artifact
        if artifact.graph:
            raise RunError(
                msg(
                    "a CUDA graph runs its kernels as one, and PyTorch's profiler, which would "
                    "tell them apart, cannot be used; profile the row without graphs"
                )
            )
        self._run: Callable[[], Any] = lambda: loaded.run(inputs)
        self._machine = loaded.machine
        self._on_gpu = artifact.target.kind == "cuda"
        self._clock: Clock = DeviceClock(loaded.device.index) if self._on_gpu else HostClock()
        self.how = (
            msg("TVM's VM instrument, with CUDA events around each kernel")
            if self._on_gpu
            else msg("TVM's VM instrument")
        )
        self._work = {kernel.name: kernel for kernel in read_kernels(artifact.path)}
        self._sources: dict[str, list[tuple[str, ...]]] = {}
        for call in artifact.kernels:
            self._sources.setdefault(call.kernel, []).append(call.source_ops)
        self._runs: list[tuple[list[Event], int, int]] = []

    def run(self) -> float:
        """Run once; the instrument only records names and clock readings."""
        marks: list[Mark] = []
        now = self._clock.now
        self._machine.set_instrument(_instrument(marks, now))
        try:
            start = now()
            self._run()
            end = now()
        finally:
            self._machine.set_instrument(None)
        times = self._clock.times([start, *(at for _, _, at in marks), end])
        events = [(n, b, t) for (n, b, _), t in zip(marks, times[1:-1], strict=True)]
        self._runs.append((events, times[0], times[-1]))
        return (times[-1] - times[0]) * 1e-9

    def traces(self) -> list[Trace]:
        """Return a trace per run."""
        return [self._trace(*run) for run in self._runs]

    def _trace(self, events: list[Event], start: int, end: int) -> Trace:
        calls = list(_kernels(events))
        if not calls:
            raise RunError(
                msg(
                    "the virtual machine's instrument saw no kernel; compile with --exec-mode "
                    "bytecode"
                )
            )
        counts, seen = Counter(name for name, _, _ in calls), Counter[str]()
        spans = []
        for name, first, last in calls:
            source_ops = self._source_ops(name, seen[name], counts[name])
            spans.append(self._span(name, source_ops, (last - first) * 1e-9))
            seen[name] += 1
        idle = idle_s(((first, last) for _, first, last in calls), start, end)
        times = None
        if self._on_gpu:
            ran = tuple(Activity(name=n, start=first, end=last) for n, first, last in calls)
            times = Recording(start=start, end=end, activities=ran).times
        return Trace(tuple(spans), idle * 1e-9, times)

    def _source_ops(self, name: str, index: int, count: int) -> tuple[str, ...]:
        """Return the operators of this call; of all calls if some were optimised away after the
        trace.

        A batch that is computed in parts makes every call once per part.
        """
        known = self._sources.get(name, [])
        if known and count % len(known) == 0:
            return known[index % len(known)]
        return tuple(dict.fromkeys(op for ops in known for op in ops))

    def _span(self, name: str, source_ops: tuple[str, ...], seconds: float) -> Span:
        work = self._work.get(name)
        if work is None:
            return Span(name, source_ops, seconds)
        return Span(
            name,
            source_ops,
            seconds,
            work.kind,
            work.flops,
            work.bytes,
            work.products,
            work.code.resources if work.code else None,
        )


class Clock(Protocol):
    """What the instrument reads before and after each call."""

    def now(self) -> Any:
        """Return a reading, at once."""

    def times(self, readings: Sequence[Any]) -> list[int]:
        """Wait for what was read, and return the nanoseconds of each; None is the one before."""


class HostClock:
    """The processor's clock."""

    now = staticmethod(time.perf_counter_ns)

    def times(self, readings: Sequence[Any]) -> list[int]:
        """Return the readings, which are times already."""
        return _filled(readings)


class DeviceClock:
    """A GPU's clock: events on the stream of TVM's kernels, from the first of a run on."""

    def __init__(self, device: int) -> None:
        load_model.use_device(device)

    def now(self) -> driver.Event:
        """Queue an event behind the kernels that were launched."""
        event = driver.Event()
        event.record()
        return event

    def times(self, readings: Sequence[Any]) -> list[int]:
        """Wait for the last event; return the times since the first one."""
        first, last = readings[0], readings[-1]
        last.wait()
        found = [None if e is None else round(e.since_s(first) * 1e9) for e in readings]
        for event in readings:
            if event is not None:
                event.close()
        return _filled(found)


def _filled(times: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    for at in times:
        found.append(found[-1] if at is None else at)
    return found


def _instrument(marks: list[Mark], now: Callable[[], Any]) -> Callable[..., int]:
    note = marks.append

    def on_call(_function: Any, name: str, before: bool, _result: Any, *_: Any) -> int:
        note((name, before, None if name.startswith(_BUILT_IN) else now()))
        return _KEEP_RUNNING

    return on_call


def _kernels(events: list[Event]) -> Iterator[tuple[str, int, int]]:
    """Select calls that contain no other call (a Relax function does) and are not the VM's own."""
    for (name, before, start), (_, follows, end) in pairwise(events):
        if before and not follows and not name.startswith(_BUILT_IN):
            yield name, start, end
