"""Kernel times on TVM's virtual machine, through its instrument: a call before and after each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime.artifact import read_kernels
from tvmscope.runtime.loaded_artifact import LoadedArtifact

Event = tuple[str, bool, int]
"""A function's name, whether it is about to run, and the clock in nanoseconds."""
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
        on_gpu = artifact.target.kind == "cuda"
        self._wait: Callable[[], None] | None = loaded.device.sync if on_gpu else None
        self.how = (
            msg("TVM's VM instrument, synchronised around each kernel")
            if on_gpu
            else msg("TVM's VM instrument")
        )
        self._work = {kernel.name: kernel for kernel in read_kernels(artifact.path)}
        self._sources: dict[str, list[tuple[str, ...]]] = {}
        for call in artifact.kernels:
            self._sources.setdefault(call.kernel, []).append(call.source_ops)
        self._runs: list[tuple[list[Event], int, int]] = []

    def run(self) -> float:
        """Run once; the instrument only records names and clock readings."""
        events: list[Event] = []
        clock = time.perf_counter_ns
        self._machine.set_instrument(_instrument(events, self._wait))
        try:
            start = clock()
            self._run()
            if self._wait is not None:
                self._wait()
            end = clock()
        finally:
            self._machine.set_instrument(None)
        self._runs.append((events, start, end))
        return (end - start) * 1e-9

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
        return Trace(tuple(spans), idle * 1e-9)

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


def _instrument(events: list[Event], wait: Callable[[], None] | None) -> Callable[..., int]:
    note, clock = events.append, time.perf_counter_ns

    def on_cpu(_function: Any, name: str, before: bool, _result: Any, *_: Any) -> int:
        note((name, before, clock()))
        return _KEEP_RUNNING

    def on_gpu(_function: Any, name: str, before: bool, _result: Any, *_: Any) -> int:
        assert wait is not None
        wait()  # before: earlier queued work is not this kernel's; after: the kernel runs alone
        note((name, before, clock()))
        return _KEEP_RUNNING

    return on_cpu if wait is None else on_gpu


def _kernels(events: list[Event]) -> Iterator[tuple[str, int, int]]:
    """Select calls that contain no other call (a Relax function does) and are not the VM's own."""
    for (name, before, start), (_, follows, end) in pairwise(events):
        if before and not follows and not name.startswith(_BUILT_IN):
            yield name, start, end
