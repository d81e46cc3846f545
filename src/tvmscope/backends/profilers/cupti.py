"""Reads what a GPU ran, by its own clock: CUPTI's records, through PyTorch's profiler.

The records are of every kernel and copy of this process, whoever launched it, also inside a CUDA
graph.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvmscope.backends.api import idle_s
from tvmscope.core.profile import DeviceTimes
from tvmscope.messages import msg

MARK = "tvmscope:"
HOW = msg("CUPTI, through torch.profiler")
_MOVES = re.compile(
    r"^mem(cpy|set)|nchw_?to_?nhwc|nhwc_?to_?nchw|transpose|direct_copy|convert_?layout|^copy",
    re.IGNORECASE,
)

_WAITS = re.compile(r"\bSync(hronize)?$|\bWait Event$")


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A kernel, copy or fill on the device, in nanoseconds of the profiler's clock.

    A part of the model that a framework computes on the host is one too, with its copies: the
    device waits for it.
    """

    name: str
    start: int
    end: int
    launches: int = 1
    """What the device was given for it."""

    @property
    def moves_only(self) -> bool:
        """Whether its name says that it computes nothing."""
        return bool(_MOVES.search(self.name))


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One run: the host's call from start to end, and what the device did in order."""

    start: int
    end: int
    activities: tuple[Activity, ...]

    @property
    def times(self) -> DeviceTimes:
        """How the device spent the run apart from kernels."""
        spans = [(a.start, a.end) for a in self.activities]
        first = min((s for s, _ in spans), default=self.end)
        last = max((e for _, e in spans), default=first)
        gaps = idle_s(spans, first, last)
        busy = last - first - gaps
        return DeviceTimes(
            launches=sum(a.launches for a in self.activities),
            gap_s=gaps * 1e-9,
            edge_s=max(0.0, self.end - self.start - (last - first)) * 1e-9,
            overlap_s=max(0.0, sum(e - s for s, e in spans) - busy) * 1e-9,
        )


def record(torch: Any, run: Callable[[], Any]) -> tuple[float, Recording]:
    """Run once and wait for the end; return the seconds without the profiler's start."""
    profiler = torch.profiler
    kinds = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    with profiler.profile(activities=kinds) as recorded, profiler.record_function(MARK):
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
    return seconds, read(recorded.profiler.kineto_results.events())


def read(events: Sequence[Any]) -> Recording:
    """Convert a profiler's raw events to a recording."""
    start, end = 0, 0
    found: list[Activity] = []
    on_host: list[Activity] = []
    for event in events:
        on_device, name = "CPU" not in str(event.device_type()), event.name()
        began, ended = event.start_ns(), event.start_ns() + event.duration_ns()
        if not on_device and name == MARK:
            start, end = began, ended
        elif not on_device and name.startswith(MARK):
            on_host.append(Activity(name=name.removeprefix(MARK), start=began, end=ended))
        elif on_device and not name.startswith(MARK) and not _is_note(event):
            found.append(Activity(name=name, start=began, end=ended))
    whole = sorted(_with_host(found, on_host), key=lambda a: (a.start, a.end))
    return Recording(start=start, end=end, activities=tuple(whole))


def _with_host(found: Sequence[Activity], on_host: Sequence[Activity]) -> Iterator[Activity]:
    """Parts on the host take the place of their copies."""
    inside = {
        part: [a for a in found if part.start <= a.start and a.end <= part.end] for part in on_host
    }
    taken = {activity for copies in inside.values() for activity in copies}
    yield from (a for a in found if a not in taken)
    yield from (replace(part, launches=len(copies)) for part, copies in inside.items())


def _is_note(event: Any) -> bool:
    """Whether the activity is a host range or wait that the profiler also shows on the device."""
    said = (getattr(event, name, None) for name in ("activity_type", "is_user_annotation"))
    notes = [str(ask()) for ask in said if ask is not None]
    if any(note == "True" or "annotation" in note for note in notes):
        return True
    return bool(_WAITS.search(event.name()))


def is_readable(torch: Any, run: Callable[[], Any]) -> bool:
    """Whether a recorded run shows what the device did: CUPTI may be missing, or not allowed."""
    if not torch.cuda.is_available():
        return False
    # CUPTI taken down and set up again between runs would lose graphs that were recorded before
    os.environ.setdefault("TEARDOWN_CUPTI", "0")
    os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
    _, recording = record(torch, run)
    return bool(recording.activities)
