"""Kernel times on TVM's virtual machine, through its instrument: a call before and after each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tvmscope.backends.api import Span, Trace, idle_s
from tvmscope.backends.profilers.cupti import Activity, Recording
from tvmscope.backends.profilers.tvm_graph import GraphRecorder
from tvmscope.backends.profilers.tvm_marks import BUILT_IN, Event, MarkRecorder, Recorder, Run
from tvmscope.core.artifact import KernelCall, edges_of, sources_of
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime.artifact import read_kernels
from tvmscope.runtime.loaded_artifact import LoadedArtifact


class VmProfiler:
    """Works on an artifact folder alone; `meta.json` and `kernels.json` say what kernels are."""

    def __init__(self, loaded: LoadedArtifact, inputs: list[Any]) -> None:
        artifact = loaded.artifact
        self._on_gpu = artifact.target.kind == "cuda"
        made = GraphRecorder if artifact.graph else MarkRecorder
        self._recorder: Recorder = made(loaded, inputs)
        self.how = self._recorder.how
        self._work = {kernel.name: kernel for kernel in read_kernels(artifact.path)}
        self._calls: dict[str, list[KernelCall]] = {}
        for call in artifact.kernels:
            self._calls.setdefault(call.kernel, []).append(call)
        self._runs: list[Run] = []

    def run(self) -> float:
        """Run once; return the seconds by the recorder's clock."""
        run = self._recorder.record()
        self._runs.append(run)
        return (run.end - run.start) * 1e-9

    def traces(self) -> list[Trace]:
        """Return a trace per run."""
        return [self._trace(run) for run in self._runs]

    def _trace(self, run: Run) -> Trace:
        calls = list(_kernels(run.events))
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
            of = self._calls_of(name, seen[name], counts[name])
            spans.append(self._span(name, of, (last - first) * 1e-9))
            seen[name] += 1
        idle = idle_s(((first, last) for _, first, last in calls), run.start, run.end)
        times = None
        if self._on_gpu:
            ran = tuple(Activity(name=n, start=first, end=last) for n, first, last in calls)
            times = Recording(start=run.start, end=run.end, activities=ran).times
        return Trace(tuple(spans), idle * 1e-9, times)

    def _calls_of(self, name: str, index: int, count: int) -> list[KernelCall]:
        """Return the artifact's call that this is; all of the kernel if some were optimised away
        after the trace.

        A batch that is computed in parts makes every call once per part.
        """
        known = self._calls.get(name, [])
        if known and count % len(known) == 0:
            return [known[index % len(known)]]
        return known

    def _span(self, name: str, calls: Sequence[KernelCall], seconds: float) -> Span:
        work, source_ops, edges = self._work.get(name), sources_of(calls), edges_of(calls)
        if work is None:
            return Span(name, source_ops, seconds, edges=edges)
        return Span(
            name,
            source_ops,
            seconds,
            work.kind,
            work.flops,
            work.bytes,
            work.products,
            work.code.resources if work.code else None,
            edges=edges,
        )


def _kernels(events: Sequence[Event]) -> Iterator[tuple[str, int, int]]:
    """Select calls that contain no other call (a Relax function does) and are not the VM's own."""
    for (name, before, start), (_, follows, end) in pairwise(events):
        if before and not follows and not name.startswith(BUILT_IN):
            yield name, start, end
