"""Kernel times inside a CUDA graph, on a made-up driver and a virtual machine that captures."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_cuda import FakeTimeline
from tvmscope.backends.profilers import tvm as vm
from tvmscope.backends.profilers import tvm_marks
from tvmscope.core.artifact import KernelCall
from tvmscope.core.profile import Edges
from tvmscope.cuda import driver
from tvmscope.errors import RunError
from tvmscope.runtime.loaded_artifact import LoadedArtifact

LAUNCH = "vm.builtin.cuda_graph.run_or_capture"
CAPTURE_STREAM = 7
DURATIONS_US = {"pad": 3.0, "conv": 20.0, "clip": 2.0, "pool": 5.0, "dense": 8.0}
PROGRAM = ("pad", 0, "vm.builtin.reshape", "dense", 1, "dense")
PARTS = (("conv", "vm.builtin.alloc_tensor", "clip"), ("conv", "pool"))
CALLS = tuple(
    KernelCall(kernel=name, source_ops=(f"{name}{i}",), edges=Edges(inputs=(i,)))
    for i, name in enumerate(("pad", "conv", "clip", "dense", "conv", "pool", "dense"))
)


class Machine:
    """A virtual machine that captures a part when it first comes to it, as TVM's does."""

    def __init__(self, timeline: FakeTimeline, program: tuple[str | int, ...]) -> None:
        self.timeline, self.program, self.stream = timeline, program, 0
        self.instrument: Callable[..., int] | None = None
        self.graphs: dict[int, Any] = {}
        self.forgets = False

    def __getitem__(self, _name: str) -> Callable[..., None]:
        return self.main

    def set_instrument(self, given: Callable[..., int] | None) -> None:
        self.instrument = given

    def main(self) -> None:
        for item in self.program:
            if isinstance(item, str):
                self.call(item)
                continue
            arguments = (self, "function", (), item)
            self.note(LAUNCH, True, *arguments)
            self.part(item)
            self.note(LAUNCH, False, *arguments)

    def part(self, number: int) -> None:
        if number in self.graphs:
            self.timeline.launch(self.graphs[number])
            return
        for name in PARTS[number]:
            self.call(name)
        self.timeline.begin(CAPTURE_STREAM)
        self.stream = CAPTURE_STREAM
        for name in PARTS[number]:
            self.call(name)
        self.stream = 0
        graph = self.timeline.end()
        if not self.forgets:
            self.graphs[number] = graph

    def call(self, name: str) -> None:
        self.note(name, True)
        if name in DURATIONS_US:
            self.timeline.kernel(DURATIONS_US[name])
        self.note(name, False)

    def note(self, name: str, before: bool, *arguments: Any) -> None:
        if self.instrument is not None:
            assert not gc.isenabled()  # a collection might end the capture
            assert self.instrument(None, name, before, None, *arguments) == 0


class Loaded(LoadedArtifact):
    def afresh(self) -> Loaded:
        machine: Any = Machine(self.machine.timeline, self.machine.program)
        return Loaded(self.artifact, machine, self.device)

    @property
    def stream(self) -> int:
        return self.machine.stream


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> FakeTimeline:
    made = FakeTimeline()
    monkeypatch.setattr(driver, "_library", lambda: made)
    monkeypatch.setattr(tvm_marks.load_model, "use_device", lambda index: None)
    monkeypatch.setattr(vm, "read_kernels", lambda path: ())
    return made


def profiler(timeline: FakeTimeline, program: tuple[str | int, ...] = PROGRAM) -> vm.VmProfiler:
    artifact: Any = SimpleNamespace(
        graph=True, target=SimpleNamespace(kind="cuda"), kernels=CALLS, path=Path()
    )
    machine: Any = Machine(timeline, program)
    device: Any = SimpleNamespace(index=0)
    return vm.VmProfiler(Loaded(artifact, machine, device), [])


def test_kernels_of_parts_are_timed_in_every_run_in_the_programs_order(
    timeline, monkeypatch
) -> None:
    found = profiler(timeline)
    for scale in (1, 2, 3):  # of a kernel outside; those in graphs were captured with theirs
        monkeypatch.setitem(DURATIONS_US, "pad", 3.0 * scale)
        assert found.run() == pytest.approx((3 * scale + 22 + 8 + 25 + 8) * 1e-6)
    traces = found.traces()
    assert len(traces) == 3
    for scale, trace in enumerate(traces, 1):
        times = [(s.kernel, s.source_ops, round(s.seconds * 1e6, 6)) for s in trace.spans]
        assert times == [
            ("pad", ("pad0",), 3 * scale), ("conv", ("conv1",), 20), ("clip", ("clip2",), 2),
            ("dense", ("dense3",), 8), ("conv", ("conv4",), 20), ("pool", ("pool5",), 5),
            ("dense", ("dense6",), 8),
        ]  # fmt: skip
        assert [s.edges for s in trace.spans] == [call.edges for call in CALLS]
        assert trace.device is not None
        assert trace.device.launches == 7
        assert trace.device.gap_s == pytest.approx(0)
        assert trace.device.overlap_s == pytest.approx(0)
    assert "do not overlap" in str(found.how)


def test_events_are_nodes_while_tvm_captures_and_only_then(timeline) -> None:
    """The driver refuses one without the flag in a capture, or with it elsewhere."""
    found = profiler(timeline)
    found.run()
    nodes = 2 * sum(name in DURATIONS_US for part in PARTS for name in part)
    assert len(timeline.alive) == nodes  # the others are freed after each run
    for _ in range(3):
        found.run()
    assert len(timeline.alive) == nodes
    assert gc.isenabled()


def test_a_run_in_which_no_kernel_is_seen_is_refused(timeline) -> None:
    with pytest.raises(RunError, match="no event was captured in a CUDA graph"):
        profiler(timeline, ()).run()


def test_a_program_whose_kernels_are_all_outside_graphs_is_timed(timeline) -> None:
    """Calls that became views do not run."""
    found = profiler(timeline, ("pad", "dense"))
    found._recorder.loaded.artifact.kernels = CALLS[:1] + CALLS[2:4]
    found.run()
    assert [span.kernel for trace in found.traces() for span in trace.spans] == ["pad", "dense"]


def test_a_part_that_is_never_launched_as_one_is_refused(timeline, monkeypatch) -> None:
    found = profiler(timeline)
    monkeypatch.setattr(found._recorder.loaded.machine, "forgets", True)
    with pytest.raises(RunError, match=r"in each of 3 runs .* one by one"):
        found.run()


def test_a_part_that_is_launched_twice_is_refused(timeline) -> None:
    with pytest.raises(RunError, match="several times in a run"):
        profiler(timeline, ("pad", 0, 0)).run()


def test_times_in_another_order_are_refused(timeline, monkeypatch) -> None:
    found = profiler(timeline)
    found.run()
    monkeypatch.setattr(timeline, "launch", lambda graph: None)  # events keep their old times
    with pytest.raises(RunError, match="not in the order"):
        found.run()


@pytest.mark.parametrize("name", ["cuEventRecordWithFlags", "cuStreamIsCapturing"])
def test_a_failure_of_the_driver_says_what_it_is(name: str, timeline, monkeypatch) -> None:
    monkeypatch.setattr(timeline, name, lambda *_: 901)
    with pytest.raises(RunError, match=rf"{name}: refused \(901\)"):
        profiler(timeline).run()


def test_tvms_own_error_after_a_failure_is_not_the_one_that_is_shown(timeline, monkeypatch) -> None:
    found = profiler(timeline)
    monkeypatch.setattr(timeline, "cuStreamIsCapturing", lambda *_: 901)
    machine: Any = found._recorder.loaded.machine

    def part(number: int) -> None:
        machine.call("conv")
        raise RuntimeError("the capture has failed")

    monkeypatch.setattr(machine, "part", part)
    with pytest.raises(RunError, match="cuStreamIsCapturing") as raised:
        found.run()
    assert "the capture has failed" in str(raised.value.__cause__)
