"""Kernel times inside a CUDA graph, by events before and after each kernel: nodes of the graph.

TVM's virtual machine launches the kernels of a graph's part twice when it first comes to the part:
once as they are, then to capture them. It calls its instrument both times, and an event that is
recorded during the capture becomes a node. From then on the machine launches the part as one; the
instrument sees one call, and each run of the graph writes the times of its events.

    run 1    pad   [conv clip pool, captured: E conv E E clip E E pool E]   dense
    run 2    pad   [one launch, which writes the times of E]                dense

A kernel waits for the event before it, so that no kernel starts while the one before it ends, as
dependent launches otherwise do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from tvmscope.backends.profilers.tvm_marks import (
    BUILT_IN,
    KEEP_RUNNING,
    DeviceClock,
    Mark,
    Run,
    timed,
)
from tvmscope.cuda import driver
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime.loaded_artifact import LoadedArtifact

_LAUNCH = f"{BUILT_IN}cuda_graph.run_or_capture"
_NUMBER = 3
"""The argument of it that numbers the parts of a program; before it are the machine, the part's
function, and that one's arguments."""
_RUNS = 3
"""The first captures, the second is recorded; one more is allowed."""
_RESOLUTION_NS = 1000
"""Twice that of CUDA's events."""

Nodes = dict[int, list[Mark]]
"""The calls in each captured part, with the events that are nodes of its graph."""


class GraphRecorder:
    """Records runs of a machine of its own, whose graphs have events.

    The loaded machine keeps its graphs without them, for plain runs. The weights are loaded twice.
    """

    how = msg(
        "CUDA events as nodes of the graph, around each kernel; dependent launches do not overlap"
    )

    def __init__(self, loaded: LoadedArtifact, inputs: list[Any]) -> None:
        self.loaded, self._inputs = loaded.afresh(), inputs
        self._clock = GraphClock(self.loaded)
        self._nodes: Nodes = {}

    def record(self) -> Run:
        """Run until the machine has captured every part before; return that run."""
        for _ in range(_RUNS):
            watch = _Watch(self._clock, self._nodes)
            start, end = self._run(watch)
            if not watch.captures:
                _check(watch)
                return timed(self._clock, start, watch.marks, end)
            self._clock.close([start, *(at for _, _, at in watch.marks), end])
        raise RunError(
            msg(
                "in each of {runs} runs the virtual machine launched the kernels of a CUDA graph "
                "one by one; profile the row without graphs",
                runs=_RUNS,
            )
        )

    def _run(self, watch: _Watch) -> tuple[driver.Event, driver.Event]:
        try:
            with self.loaded.instrumented(watch):
                start = self._clock.now()
                self.loaded.run(self._inputs)
                end = self._clock.now()
        except Exception as e:  # TVM's own types; the first failure is the cause
            if watch.failure is None:
                raise
            raise watch.failure from e
        if watch.failure is not None:
            raise watch.failure
        return start, end


def _check(watch: _Watch) -> None:
    """Raise if the run's events do not tell the times of all its kernels. A small program may have
    no kernel between those of its inputs and outputs, and then no graph."""
    outside = any(before and at is not None for _, before, at in watch.marks)
    if not all(watch.parts.values()) or not (watch.parts or outside):
        raise RunError(
            msg(
                "no event was captured in a CUDA graph, so the times of its kernels are unknown; "
                "profile the row without graphs"
            )
        )
    if watch.repeats:
        raise RunError(
            msg(
                "the program launches one CUDA graph several times in a run, and its events keep "
                "the last times only; profile the row without graphs"
            )
        )


class _Watch:
    """The instrument of one run: marks in the order of the kernels, and nodes of new captures."""

    def __init__(self, clock: GraphClock, nodes: Nodes) -> None:
        self._clock, self._nodes = clock, nodes
        self._part: int | None = None
        self._seen = False  # whether the part's kernels are launched one by one
        self._captured: list[Mark] = []
        self.marks: list[Mark] = []
        self.parts: dict[int, int] = {}
        """The parts that the run launched as one, and the marks in each."""
        self.repeats = False
        """Whether it launched a part twice."""
        self.captures = False
        """Whether it launched kernels of a part one by one."""
        self.failure: RunError | None = None

    def __call__(self, _function: Any, name: str, before: bool, _result: Any, *args: Any) -> int:
        try:
            self._note(name, before, args)
        except RunError as e:  # TVM would make it another type
            self.failure = self.failure or e
        return KEEP_RUNNING

    def _note(self, name: str, before: bool, args: tuple[Any, ...]) -> None:
        if name == _LAUNCH and before:
            self._part, self._captured, self._seen = int(args[_NUMBER]), [], False
        elif name == _LAUNCH and self._part is not None:
            self._end_part(self._part)
            self._part = None
        elif self._part is None:
            self.marks.append((name, before, self._now(name)))
        elif not name.startswith(BUILT_IN):
            self._seen = self.captures = True
            if (node := self._clock.node()) is not None:
                self._captured.append((name, before, node))

    def _now(self, name: str) -> driver.Event | None:
        return None if name.startswith(BUILT_IN) else self._clock.now()

    def _end_part(self, part: int) -> None:
        """Keep what was captured; of a part that was launched as one, insert its marks."""
        if self._seen:
            self._nodes[part] = self._captured
            return
        nodes = self._nodes.get(part, [])
        self.repeats |= part in self.parts
        self.parts[part] = len(nodes)
        self.marks += nodes


class GraphClock(DeviceClock):
    """A GPU's clock, some of whose events are nodes of graphs and live as long as the process."""

    def __init__(self, loaded: LoadedArtifact) -> None:
        super().__init__(loaded.device.index)
        self._loaded = loaded
        self._spare: list[driver.Event] = []
        self._nodes: set[driver.Event] = set()

    def node(self) -> driver.Event | None:
        """Add an event to the graph that is being captured; else create one for the capture, during
        which nothing should be allocated."""
        stream = self._loaded.stream
        if not driver.is_capturing(stream):
            self._spare.append(driver.Event())
            return None
        event = self._spare.pop() if self._spare else driver.Event()
        self._nodes.add(event)
        event.record_in_graph(stream)
        return event

    def times(self, readings: Sequence[Any]) -> list[int]:
        """Return the times since the first event; raise if they are not in the order of the
        calls."""
        found = super().times(readings)
        if any(after < before - _RESOLUTION_NS for before, after in pairwise(found)):
            raise RunError(
                msg(
                    "the times of the CUDA graph's events are not in the order of its kernels; "
                    "profile the row without graphs"
                )
            )
        return list(accumulate(found, max))

    def close(self, readings: Sequence[Any]) -> None:
        """Free the events of a run but those of graphs."""
        super().close([event for event in readings if event not in self._nodes])
