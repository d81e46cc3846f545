"""Marks of TVM's virtual machine: its instrument is called before and after each call, and notes
what a clock gave then.

On a GPU the clock records CUDA events, so that no call waits for the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvmscope.cuda import driver
from tvmscope.messages import Text, msg
from tvmscope.runtime import load_model
from tvmscope.runtime.loaded_artifact import LoadedArtifact

Mark = tuple[str, bool, Any]
"""A function's name, whether it is about to run, and what the clock gave then."""
Event = tuple[str, bool, int]
"""The same with the time in nanoseconds."""
KEEP_RUNNING = 0
"""The instrument's answer: the VM makes the call."""
BUILT_IN = "vm.builtin."
"""The VM's own functions: allocation, shapes, views. Their time is host time."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a program, in nanoseconds of one clock."""

    start: int
    events: tuple[Event, ...]
    end: int


class Recorder(Protocol):
    """Runs a program under the VM's instrument."""

    @property
    def how(self) -> Text:
        """The name of the instrument."""

    def record(self) -> Run:
        """Run once."""


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
        self.close(readings)
        return _filled(found)

    def close(self, readings: Sequence[Any]) -> None:
        """Free the events of a run."""
        for event in readings:
            if event is not None:
                event.close()


def _filled(times: Sequence[int | None]) -> list[int]:
    found: list[int] = []
    for at in times:
        found.append(found[-1] if at is None else at)
    return found


class MarkRecorder:
    """Records runs of the loaded program's own machine."""

    def __init__(self, loaded: LoadedArtifact, inputs: list[Any]) -> None:
        on_gpu = loaded.artifact.target.kind == "cuda"
        self._loaded, self._inputs = loaded, inputs
        self._clock: Clock = DeviceClock(loaded.device.index) if on_gpu else HostClock()
        self.how: Text = (
            msg("TVM's VM instrument, with CUDA events around each kernel")
            if on_gpu
            else msg("TVM's VM instrument")
        )

    def record(self) -> Run:
        """Run once; the instrument only records names and clock readings."""
        marks: list[Mark] = []
        now = self._clock.now
        with self._loaded.instrumented(_instrument(marks, now)):
            start = now()
            self._loaded.run(self._inputs)
            end = now()
        return timed(self._clock, start, marks, end)


def _instrument(marks: list[Mark], now: Callable[[], Any]) -> Callable[..., int]:
    note = marks.append

    def on_call(_function: Any, name: str, before: bool, _result: Any, *_: Any) -> int:
        note((name, before, None if name.startswith(BUILT_IN) else now()))
        return KEEP_RUNNING

    return on_call


def timed(clock: Clock, start: Any, marks: Sequence[Mark], end: Any) -> Run:
    """Return the run with the times of its readings."""
    first, *times, last = clock.times([start, *(at for _, _, at in marks), end])
    events = tuple((n, before, at) for (n, before, _), at in zip(marks, times, strict=True))
    return Run(start=first, events=events, end=last)
