"""Writes a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: a process per backend.

A session knows how long each kernel takes in one run, not when it starts. Therefore kernels are
placed end to end in the profile's order, one slice for all calls of a kernel, and the trace says
so. The measured runs are beside them, also end to end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tvmscope.core.measurement import Measurement
from tvmscope.core.profile import Profile
from tvmscope.core.session import Session
from tvmscope.report.escape import clean, plain
from tvmscope.report.renderers import Renderer

Event = dict[str, Any]


def render(sessions: Sequence[Session]) -> str:
    """Render in the Trace Event Format; times are microseconds."""
    tracks = [track for session in sessions for track in _tracks(session)]
    document = {
        "traceEvents": [e for pid, track in enumerate(tracks, 1) for e in _process(pid, *track)],
        "displayTimeUnit": "ms",
        "otherData": {"note": "kernels and runs are drawn end to end; start times are unknown"},
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _tracks(session: Session) -> Iterator[tuple[str, Measurement | None, Profile | None]]:
    """Yield every row that was timed or profiled; a profile may have no timing."""
    profiles = {p.key: p for p in session.profiles}
    timed = {
        r.key: r.measurement
        for r in session.results
        if r.measurement is not None and r.measurement.values_s
    }
    for key in dict.fromkeys([*timed, *profiles]):
        name = clean(f"{session.model.name}: {key.label}")
        yield name, timed.get(key), profiles.get(key)


def _process(
    pid: int, name: str, measurement: Measurement | None, profile: Profile | None
) -> Iterator[Event]:
    yield _named("process_name", pid, 0, name)
    if profile is not None:
        yield _named("thread_name", pid, 1, "kernels of one run")
        yield from _slices(pid, 1, _kernels(profile))
        yield _named("thread_name", pid, 2, "one run without the profiler")
        how = {"how": plain(profile.how), "runs": profile.runs, "profiled_s": profile.profiled_s}
        yield from _slices(pid, 2, [("run", profile.end_to_end_s, how)])
    if measurement is not None:
        yield _named("thread_name", pid, 3, "measured runs")
        yield from _slices(pid, 3, _runs(measurement))


def _kernels(profile: Profile) -> Iterator[tuple[str, float, Event]]:
    for kernel in profile.kernels:
        sources = [clean(op) for op in kernel.source_ops]
        facts = {"calls": kernel.calls, "kind": kernel.kind, "source_ops": sources}
        work = {"flops": kernel.flops, "bytes": kernel.bytes}
        yield clean(kernel.name), kernel.total_s, facts | work
    if profile.host_s is not None:
        yield "outside kernels", profile.host_s, {}


def _runs(measurement: Measurement) -> Iterator[tuple[str, float, Event]]:
    for number, values in enumerate(measurement.rounds_s, 1):
        for value in values:
            name = f"round {number}"
            yield name, value, {"mean_of_runs": measurement.loops}


def _slices(pid: int, tid: int, parts: Iterable[tuple[str, float, Event]]) -> Iterator[Event]:
    start_us = 0.0
    for name, seconds, facts in parts:
        place = {"pid": pid, "tid": tid, "ts": start_us, "dur": seconds * 1e6}
        yield {"ph": "X", "name": name, "cat": "tvmscope", **place, "args": facts}
        start_us += seconds * 1e6


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


RENDERER = Renderer("trace", ".trace.json", render)
