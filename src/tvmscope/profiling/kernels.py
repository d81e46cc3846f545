"""Profiles one row: kernel times from separate runs, in turns with plain runs, on a GPU after them.

Headlines use none of these times: they come from runs without any instrument.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from tvmscope.backends.api import LoadRequest, Profiler, Span, Trace
from tvmscope.core.profile import DeviceTimes, Edges, KernelTime, Profile
from tvmscope.core.row import RowKey
from tvmscope.errors import RunError
from tvmscope.measure.remote import Remote, here
from tvmscope.measure.worker import Worker
from tvmscope.messages import Text, msg

BUDGET_S = 3.0
"""Target time of all runs together; a model that takes longer runs once in each mode."""
_LEAST_TURNS, _MOST_TURNS = 5, 40
_WARM_UP_S = 0.3


def profile_row(
    key: RowKey,
    load: Remote[[LoadRequest], Any],
    request: LoadRequest,
    env: Mapping[str, str],
    *,
    timeout_s: float,
    budget_s: float = BUDGET_S,
    log_path: Path | None = None,
) -> Profile:
    """Load a row in a separate worker and profile it there."""
    with Worker(key.label, env=env, timeout_s=timeout_s, log_path=log_path) as worker:
        worker.load(load, request)
        return worker.apply(PROFILE, key, budget_s)


def profile_runner(runner: Any, key: RowKey, budget_s: float) -> Profile:
    """Profile the loaded runner; called in the worker."""
    plain_s = _warm_up(runner.run)
    slow = plain_s > budget_s / 4
    plain: list[float] = []
    on_device: list[float] = []
    apart = hasattr(runner, "time_device")
    if apart:  # a traced run on a GPU makes the next plain one slower
        plain += [_timed(runner.run) for _ in range(1 if slow else 2 * _MOST_TURNS)]
        on_device += runner.time_device(1 if slow else _MOST_TURNS)
    profiler: Profiler = runner.profiler()
    if not slow:  # the first instrumented run initialises the instrument; its trace is dropped
        profiler.run()
    profiled: list[float] = []
    deadline = time.perf_counter() + budget_s
    gc.disable()  # a collection belongs to no kernel
    try:
        for turn in range(1 if slow else _MOST_TURNS):
            if turn >= _LEAST_TURNS and time.perf_counter() > deadline:
                break
            if not apart:
                plain += _turn(lambda: _timed(runner.run), slow)
            profiled += _turn(profiler.run, slow)
    finally:
        gc.enable()
    traces = profiler.traces()
    if not slow and len(traces) > 1:
        traces = traces[1:]
    return summarize(key, profiler.how, plain, profiled, traces, 1 if slow else 2, on_device)


PROFILE = here(profile_runner)


def _turn(run: Callable[[], float], slow: bool) -> list[float]:
    """Do two runs: after runs of the other kind, the first finds cold caches and sleeping
    threads."""
    return [run() for _ in range(1 if slow else 2)]


def _warm_up(run: Callable[[], None]) -> float:
    """Run until warm; return the shortest time, because other processes may disturb a run."""
    start, times = time.perf_counter(), [_timed(run)]
    while time.perf_counter() - start < _WARM_UP_S:
        times.append(_timed(run))
    return min(times)


def _timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def summarize(
    key: RowKey,
    how: Text,
    plain: Sequence[float],
    profiled: Sequence[float],
    traces: Sequence[Trace],
    stride: int = 1,
    on_device: Sequence[float] = (),
) -> Profile:
    """Return means over the typical runs: the middle half by time, of the last run of every turn.

    A single trace is already the mean over all profiled runs, so it is combined with their mean.
    `on_device` are plain runs by a GPU's own clock.
    """
    if len(traces) not in (1, len(profiled)):
        raise RunError(
            msg("{count} traces of {runs} profiled runs", count=len(traces), runs=len(profiled))
        )
    settled = list(profiled[stride - 1 :: stride])
    if len(traces) == 1:
        profiled_s, typical = fmean(profiled), list(traces)
    else:
        kept = traces[stride - 1 :: stride]
        middle = _middle(settled)
        profiled_s = fmean(settled[i] for i in middle)
        typical = [kept[i] for i in middle]
    plain = plain[stride - 1 :: stride]
    hosts = [t.host_s for t in typical if t.host_s is not None]
    return Profile(
        key=key,
        kernels=merge(typical),
        how=how,
        runs=len(settled),
        end_to_end_s=fmean(plain[i] for i in _middle(plain)),
        profiled_s=profiled_s,
        host_s=fmean(hosts) if len(hosts) == len(typical) else None,
        device=_mean_device([t.device for t in typical], on_device),
    )


def _mean_device(
    traces: Sequence[DeviceTimes | None], on_device: Sequence[float]
) -> DeviceTimes | None:
    known = [t for t in traces if t is not None]
    if not known or len(known) < len(traces):
        return None
    return DeviceTimes(
        launches=round(fmean(t.launches for t in known)),
        gap_s=fmean(t.gap_s for t in known),
        edge_s=fmean(t.edge_s for t in known),
        overlap_s=fmean(t.overlap_s for t in known),
        plain_s=fmean(on_device[i] for i in _middle(on_device)) if on_device else None,
    )


def _middle(values: Sequence[float]) -> list[int]:
    """Return the indices of the middle half."""
    order = sorted(range(len(values)), key=values.__getitem__)
    cut = len(order) // 4
    return order[cut : len(order) - cut]


def merge(traces: Sequence[Trace]) -> tuple[KernelTime, ...]:
    """Return a time per kernel, source operators and edges, in the order of their first call."""
    grouped: dict[tuple[str, tuple[str, ...], str, Edges | None], list[Span]] = {}
    for trace in traces:
        for span in trace.spans:
            of = (span.kernel, span.source_ops, span.kind, span.edges)
            grouped.setdefault(of, []).append(span)
    runs = len(traces)
    return tuple(
        KernelTime(
            name=name,
            source_ops=source_ops,
            calls=round(len(spans) / runs),
            total_s=sum(s.seconds for s in spans) / runs,
            flops=_total((s.flops for s in spans), runs),
            bytes=_total((s.bytes for s in spans), runs),
            kind=kind,
            products=spans[0].products,
            resources=longest.resources,
            symbol=longest.symbol,
            edges=edges,
        )
        for (name, source_ops, kind, edges), spans in grouped.items()
        for longest in (max(spans, key=lambda s: s.seconds),)
    )


def _total(values: Iterable[float | None], runs: int) -> float | None:
    known = list(values)
    return None if any(v is None for v in known) else sum(v for v in known if v) / runs
