"""Kernel times of an artifact on a GPU by the device's own clock, with or without a CUDA graph.

The device knows symbols; the artifact knows which of its functions has which symbol, and the order
in which the program calls them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvmscope.backends.api import Span, Trace
from tvmscope.backends.profilers import cupti
from tvmscope.backends.profilers.cupti import Activity, Recording
from tvmscope.core.artifact import KernelCall, edges_of, sources_of
from tvmscope.core.profile import Edges, KernelIR, Resources
from tvmscope.cuda.config import LIBRARIES
from tvmscope.runtime import fallback_gpu
from tvmscope.runtime.artifact import read_kernels
from tvmscope.runtime.loaded_artifact import LoadedArtifact

_OWN = re.compile(r"_kernel(_\d+)?$")
"""The suffix that TVM adds to a function's name for each kernel that it launches."""


class DeviceProfiler:
    """Profiles the artifact's kernels without synchronisation between them."""

    how = cupti.HOW

    def __init__(self, torch: Any, run: Callable[[], Any], loaded: LoadedArtifact) -> None:
        self._torch, self._recorder = torch, cupti.Recorder(torch, run)
        self._calls = loaded.artifact.kernels
        self._described = {k.name: k for k in read_kernels(loaded.artifact.path)}

    def run(self) -> float:
        """One run under the profiler."""
        with _parts_on_host(self._torch):
            return self._recorder.run()

    def traces(self) -> list[Trace]:
        """Return a trace per run."""
        return [trace(r, self._calls, self._described) for r in self._recorder.recordings]


@contextmanager
def _parts_on_host(torch: Any) -> Iterator[None]:
    """Let the recording show what frameworks compute on the host."""
    before = fallback_gpu.observe
    fallback_gpu.observe = lambda name: torch.profiler.record_function(f"{cupti.MARK}{name}")
    try:
        yield
    finally:
        fallback_gpu.observe = before


def trace(
    recording: Recording, calls: Sequence[KernelCall], described: Mapping[str, KernelIR]
) -> Trace:
    """Return the run's kernels by the artifact's functions, with their source operators."""
    found = match([a.name for a in recording.activities], calls, described)
    spans = []
    for activity, of in zip(recording.activities, found, strict=True):
        known = described.get(of.function)
        kind = known.kind if known else "layout" if activity.moves_only else "compute"
        flops, moved = (known.flops, known.bytes) if known else (None, None)
        spans.append(
            Span(
                of.function,
                of.source_ops,
                (activity.end - activity.start) * 1e-9,
                kind,
                None if flops is None else flops / of.kernels,
                None if moved is None else moved / of.kernels,
                known.products if known else None,
                _resources(activity, known),
                activity.name if known is not None and known.rule in LIBRARIES else None,
                of.edges,
            )
        )
    times = recording.times
    return Trace(tuple(spans), times.gap_s + times.edge_s, times)


def _resources(activity: Activity, known: KernelIR | None) -> Resources | None:
    """Return what the device says of a launch, with what only the machine code shows."""
    if known is None or known.code is None:
        return activity.resources
    of_code = known.code.resources
    if activity.resources is None:
        return of_code
    said = activity.resources
    occupancy = of_code.occupancy if said.occupancy is None else said.occupancy
    return replace(said, spilled_bytes=of_code.spilled_bytes, occupancy=occupancy)


@dataclass(frozen=True)
class Owner:
    """The function that a kernel belongs to."""

    function: str
    source_ops: tuple[str, ...]
    kernels: int = 1
    """How many kernels a call of the function launches."""
    edges: Edges | None = None
    """Where the call lies in the program."""


def match(
    symbols: Sequence[str], calls: Sequence[KernelCall], described: Mapping[str, KernelIR]
) -> list[Owner]:
    """Assign to each kernel of a run its function and the source operators of that call.

    The n-th kernel of a symbol is the n-th call of a function with that symbol; a batch that is
    computed in parts makes every call once per part. A kernel with an unknown symbol (a library's)
    belongs to the calls that the program makes between its neighbours' calls.
    """
    known: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        known.setdefault(_symbol(call.kernel, described), []).append(place)
    names = [_OWN.sub("", s) if _OWN.sub("", s) in known else s for s in symbols]
    several: dict[str, set[str]] = {}
    for name, symbol in zip(names, symbols, strict=True):
        several.setdefault(name, set()).add(symbol)
    counts, seen = Counter(names), Counter[str]()
    places: list[list[int] | None] = []
    for name in names:
        mine, each = known.get(name), len(several[name])
        if mine is not None and counts[name] % (len(mine) * each) == 0:
            mine = [mine[seen[name] // each % len(mine)]]
        places.append(mine)
        seen[name] += 1
    taken = {p for found in places if found is not None for p in found}
    found = [
        mine if mine is not None else list(_between(places, i, len(calls), taken))
        for i, mine in enumerate(places)
    ]
    return [
        _owner([calls[p] for p in mine], name, len(several[name]) if name in known else 1)
        for mine, name in zip(found, names, strict=True)
    ]


def _symbol(function: str, described: Mapping[str, KernelIR]) -> str:
    known = described.get(function)
    return known.code.symbol if known is not None and known.code is not None else function


def _between(places: Sequence[list[int] | None], index: int, count: int, taken: set[int]) -> range:
    """Return the calls without a kernel of their own between a kernel's two neighbours."""
    before = next((p[-1] for p in reversed(places[:index]) if p), -1)
    after = next((p[0] for p in places[index + 1 :] if p), count)
    first = before + 1
    while first < after and first in taken:
        first += 1
    last = first
    while last < after and last not in taken:
        last += 1
    return range(first, last)


def _owner(calls: Sequence[KernelCall], name: str, kernels: int) -> Owner:
    functions = {call.kernel for call in calls}
    function = functions.pop() if len(functions) == 1 else name
    return Owner(function, sources_of(calls), kernels, edges_of(calls))
