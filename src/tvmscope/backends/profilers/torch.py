"""Operator times of eager PyTorch, by its own profiler, with the module that runs each operator.

The outermost operators are what torch.export records too, so names can be found again one by one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.backends.profilers import cupti
from tvmscope.backends.profilers.cupti import Activity, Recording
from tvmscope.core.prepared import operators
from tvmscope.core.profile import Resources
from tvmscope.messages import Text, msg

if TYPE_CHECKING:
    from tvmscope.backends.torch_module import TorchRunner

_MARK = "tvmscope:"
_MOVES = {"contiguous", "clone", "copy", "to", "_to_copy"}


class TorchProfiler:
    """On the CPU an operator's own time; on CUDA that of the kernels it launched.

    Host time is that in which no operator, or on CUDA no kernel, ran, by the profiler's clock.
    """

    def __init__(self, runner: TorchRunner, folder: Path) -> None:
        self.runner, self.torch = runner, runner.torch
        self.how: Text = "torch.profiler"
        if runner.device == "cuda":
            self.how = msg("torch.profiler, kernel times")
        self._names = operators.read(folder).names
        self._events: list[Any] = []
        self._taken: cupti.Taken | None = None

    def run(self) -> float:
        """Run once under the profiler; starting and reading it is not part of the time."""
        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self.runner.device == "cuda":
            activities.append(profiler.ProfilerActivity.CUDA)
        with self._marked_modules(), profiler.profile(activities=activities) as recorded:
            start = time.perf_counter()
            with profiler.record_function(_MARK):
                self.runner.run()
            seconds = time.perf_counter() - start
        self._events.append(recorded.events())
        if self._taken is None and self.runner.device == "cuda":
            self._taken = cupti.resources(recorded)
        return seconds

    def traces(self) -> list[Trace]:
        """Return a trace per run."""
        return [self._trace(events) for events in self._events]

    def launches(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the kernels of the last run in order, each with its source operators."""
        calls = _outermost(self._events[-1])
        sources = find_sources([(path, op) for path, op, _ in calls], self._names)
        return [
            (kernel.name, source_ops)
            for (_, _, event), source_ops in zip(calls, sources, strict=True)
            for kernel in _kernels(event)
        ]

    @contextmanager
    def _marked_modules(self) -> Iterator[None]:
        """Record every module's call as a range named after its path."""
        calls: Counter[str] = Counter()
        open_ranges: list[Any] = []

        def enter(path: str) -> None:
            name = f"{_MARK}{path}@{calls[path]}" if calls[path] else _MARK + path
            calls[path] += 1
            open_ranges.append(self.torch.profiler.record_function(name))
            open_ranges[-1].__enter__()

        hooks = []
        for path, module in self.runner.loaded.inner.named_modules():
            if path:
                hooks.append(module.register_forward_pre_hook(lambda *_, p=path: enter(p)))
                hooks.append(
                    module.register_forward_hook(
                        lambda *_: open_ranges.pop().__exit__(None, None, None)
                    )
                )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _trace(self, events: Iterable[Any]) -> Trace:
        events = list(events)
        whole, busy = None, []
        for event in events:
            if _on_device(event):
                if not event.name.startswith(_MARK):  # our ranges are shown there, too
                    busy.append(event.time_range)
            elif event.name == _MARK:
                whole = event.time_range
        calls = _outermost(events)
        sources = find_sources([(path, op) for path, op, _ in calls], self._names)
        on_gpu = self.runner.device == "cuda"
        resources = _resources([event for _, _, event in calls], self._taken or {})
        spans = tuple(
            Span(
                f"aten::{op}",
                source_ops,
                (event.device_time_total if on_gpu else event.cpu_time_total) * 1e-6,
                "layout" if op in _MOVES else "compute",
                resources=taken,
            )
            for (_, op, event), source_ops, taken in zip(calls, sources, resources, strict=True)
        )
        if whole is None or (on_gpu and not busy):  # the profiler may not access the device
            return Trace(spans)
        if on_gpu:  # the host runs beside the kernels, so it costs time only while the device idles
            times = _recording(whole, busy).times
            return Trace(spans, times.gap_s + times.edge_s, times)
        ranges = [event.time_range for _, _, event in calls]
        idle = idle_s(((r.start, r.end) for r in ranges), whole.start, whole.end)
        return Trace(spans, idle * 1e-6)


def _outermost(events: Iterable[Any]) -> list[tuple[str, str, Any]]:
    """Module path, operator and event of each outermost operator, in the order of their start."""
    calls = [
        (path, event.name.partition("::")[2].rstrip("_"), event)
        for event in events
        if not _on_device(event) and "::" in event.name and (path := _module(event)) is not None
    ]
    return sorted(calls, key=lambda call: call[2].time_range.start)


def _resources(calls: Sequence[Any], known: cupti.Taken) -> list[Resources | None]:
    """Return what the longest kernel of each operator takes."""
    if not known:
        return [None] * len(calls)
    launched = [list(_kernels(event)) for event in calls]
    each = iter(cupti.taken(known, [kernel.name for kernels in launched for kernel in kernels]))
    found: list[Resources | None] = []
    for kernels in launched:
        mine = [(kernel.duration, next(each)) for kernel in kernels]
        found.append(max(mine, key=lambda k: k[0], default=(0, None))[1])
    return found


def _kernels(event: Any) -> Iterator[Any]:
    """Return the kernels that an operator and those inside it launched, in order."""
    yield from event.kernels
    for child in sorted(event.cpu_children, key=lambda e: e.time_range.start):
        yield from _kernels(child)


def _recording(whole: Any, busy: list[Any]) -> Recording:
    """Convert the device's part of a profile from microseconds to whole nanoseconds."""
    activities = tuple(
        Activity(name="", start=round(r.start * 1e3), end=round(r.end * 1e3)) for r in busy
    )
    start, end = round(whole.start * 1e3), round(whole.end * 1e3)
    return Recording(start=start, end=end, activities=activities)


def find_sources(calls: list[tuple[str, str]], names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the source operators of (module path, operator) calls, in order.

    By module and operator; else by order, where the program has as many of the kind; else all of
    the module's, for code that eager mode runs in another way (fused attention).
    """
    known, seen = set(names), Counter[str]()
    by_kind: dict[str, list[str]] = {}
    for name in names:
        by_kind.setdefault(kind_of(name), []).append(name)
    counts, index = Counter(op for _, op in calls), Counter[str]()
    found: list[tuple[str, ...]] = []
    for path, op in calls:
        base = f"{path}/{op}" if path else op
        name = f"{base}_{seen[base]}" if seen[base] else base
        seen[base] += 1
        same = by_kind.get(op, [])
        if name in known:
            found.append((name,))
        elif len(same) == counts[op]:
            found.append((same[index[op]],))
        else:
            inside = (f"{path}/", f"{path}.", f"{path}@")
            found.append(tuple(n for n in names if path and n.startswith(inside)))
        index[op] += 1
    return found


def kind_of(name: str) -> str:
    """`a.b/conv2d_1` -> `conv2d`: the operator without its number."""
    operator = name.rpartition("/")[2]
    base, _, number = operator.rpartition("_")
    return base if number.isdigit() and base else operator


def _module(event: Any) -> str | None:
    """Return the path of the module that ran an operator; None for an inner operator."""
    parent = event.cpu_parent
    if parent is None or not parent.name.startswith(_MARK):
        return None
    return str(parent.name.removeprefix(_MARK))


def _on_device(event: Any) -> bool:
    return "CPU" not in str(event.device_type)
