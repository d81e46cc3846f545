"""Reads what a GPU ran, by its own clock: CUPTI's records, through PyTorch's profiler.

The records are of every kernel and copy of this process, whoever launched it, also inside a CUDA
graph.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.backends.api import idle_s
from tvmscope.core.profile import DeviceTimes, Resources
from tvmscope.messages import msg

MARK = "tvmscope:"
HOW = msg("CUPTI, through torch.profiler")
_MOVES = re.compile(
    r"^mem(cpy|set)|nchw_?to_?nhwc|nhwc_?to_?nchw|transpose|direct_copy|convert_?layout|^copy",
    re.IGNORECASE,
)

Taken = dict[str, list[Resources | None]]
"""What the launches of each kernel take, by name and in order."""
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
    resources: Resources | None = None
    """Set for a kernel, if the profiler says it."""

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


class Recorder:
    """Records runs of one call; the first says what its kernels take."""

    def __init__(self, torch: Any, run: Callable[[], Any]) -> None:
        self._torch, self._run = torch, run
        self._known: Taken | None = None
        self.recordings: list[Recording] = []

    def run(self) -> float:
        """Record one run; return its seconds without the profiler's start."""
        seconds, recorded = _record(self._torch, self._run)
        recording = read(recorded.profiler.kineto_results.events())
        if self._known is None:
            self._known = resources(recorded)
        found = taken(self._known, [a.name for a in recording.activities])
        activities = (
            replace(a, resources=r) for a, r in zip(recording.activities, found, strict=True)
        )
        self.recordings.append(replace(recording, activities=tuple(activities)))
        return seconds


def _record(torch: Any, run: Callable[[], Any]) -> tuple[float, Any]:
    profiler = torch.profiler
    kinds = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    with profiler.profile(activities=kinds) as recorded, profiler.record_function(MARK):
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
    return seconds, recorded


def resources(recorded: Any) -> Taken:
    """Return what each kernel of a profile takes: the launches of a name in order.

    Only the exported trace has it in all of PyTorch's versions; without it nothing is known.
    """
    with TemporaryDirectory(prefix="tvmscope-") as folder:
        file = Path(folder) / "trace.json"
        try:
            recorded.export_chrome_trace(str(file))
            events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        except (OSError, RuntimeError, ValueError, LookupError):
            return {}
    kernels = [e for e in events if str(e.get("cat")).lower() == "kernel" and e.get("args")]
    found: Taken = {}
    for event in sorted(kernels, key=lambda e: float(e["ts"])):
        found.setdefault(event["name"], []).append(_resources(event["args"]))
    return found


def _resources(said: Mapping[str, Any]) -> Resources | None:
    if "grid" not in said or "block" not in said:
        return None
    occupancy = said.get("est. achieved occupancy %")
    return Resources(
        blocks=math.prod(said["grid"]),
        threads=math.prod(said["block"]),
        registers=said.get("registers per thread"),
        shared_bytes=said.get("shared memory"),
        occupancy=None if occupancy is None else occupancy / 100,
    )


def taken(known: Taken, names: Sequence[str]) -> list[Resources | None]:
    """Return what the kernels of another run take: the n-th launch of a name takes the same in
    every run."""
    counts, seen = Counter(names), Counter[str]()
    found: list[Resources | None] = []
    for name in names:
        launches = known.get(name, [])
        same = len(launches) == counts[name] or len(set(launches)) == 1
        found.append(launches[seen[name] % len(launches)] if same else None)
        seen[name] += 1
    return found


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
    _, recorded = _record(torch, run)
    return bool(read(recorded.profiler.kineto_results.events()).activities)
