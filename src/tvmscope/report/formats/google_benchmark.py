"""Writes the JSON of google-benchmark, for its compare.py and for dashboards that read it.

A round is a repetition, its time the mean of its runs. Sessions have wall times only; readers of
the format require `cpu_time`, so it repeats the wall time, and the context says so.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvmscope.core.measurement import Result
from tvmscope.core.session import Session
from tvmscope.report.escape import plain
from tvmscope.report.renderers import Renderer

_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
}


def render(sessions: Sequence[Session]) -> str:
    """Render one document; several models differ in the names of their benchmarks."""
    rows = [(session, result) for session in sessions for result in session.results]
    entries = [e for family, row in enumerate(rows) for e in _family(family, *row)]
    document = {"context": _context(sessions[0]), "benchmarks": entries}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _context(session: Session) -> dict[str, Any]:
    env = session.environment
    return {
        "date": session.started,
        "host_name": plain(env.host),
        "executable": plain(session.command),
        "num_cpus": env.cores,
        "cpu_scaling_enabled": None,
        "load_avg": [] if env.load is None else [env.load],
        "cpu": plain(env.cpu),
        "isa_cap": env.isa_cap,
        "gpu": env.gpu and plain(env.gpu),
        "note": "cpu_time is not measured: it repeats real_time",
    }


def _family(number: int, session: Session, result: Result) -> Iterator[dict[str, Any]]:
    task = result.task
    name = plain(f"{session.model.name}/{task.key.name}/{task.target}")
    measurement = result.measurement
    rounds = [r for r in measurement.rounds_s if r] if measurement else []
    entry = {
        "name": name,
        "family_index": number,
        "per_family_instance_index": 0,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": max(1, len(rounds)),
        "threads": task.threads,
    }
    if result.status != "ok" or measurement is None or not rounds:
        # A wrong result has a time, but nothing may be compared with it.
        reason = result.reason or result.status
        yield entry | {"error_occurred": True, "error_message": plain(reason)}
        return
    times = [statistics.fmean(values) for values in rounds]
    for index, (values, seconds) in enumerate(zip(rounds, times, strict=True)):
        runs = len(values) * measurement.loops
        yield entry | {"repetition_index": index, "iterations": runs} | _time(seconds, result)
    yield from _aggregates(entry, times)


def _aggregates(entry: dict[str, Any], times: list[float]) -> Iterator[dict[str, Any]]:
    for kind, function in _AGGREGATES.items() if len(times) > 1 else ():
        named = {"name": f"{entry['name']}_{kind}", "run_type": "aggregate"}
        yield (
            entry
            | named
            | {
                "aggregate_name": kind,
                "aggregate_unit": "time",
                "iterations": len(times),
                **_time(function(times)),
            }
        )


def _time(seconds: float, result: Result | None = None) -> dict[str, Any]:
    found = {"real_time": seconds * 1e9, "cpu_time": seconds * 1e9, "time_unit": "ns"}
    items = result.items if result else None
    return found | ({"items_per_second": items / seconds} if items and seconds else {})


RENDERER = Renderer("google-benchmark", ".benchmark.json", render)
