"""The virtual machine's profiler: what its instrument's marks become, on the CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tvmscope.backends.profilers import tvm as vm
from tvmscope.backends.profilers import tvm_marks
from tvmscope.core.artifact import KernelCall
from tvmscope.core.profile import Edges, KernelIR, MachineCode
from tvmscope.errors import RunError
from tvmscope.runtime.loaded_artifact import LoadedArtifact

CALLS = (
    KernelCall(kernel="conv", source_ops=("conv1",), edges=Edges(inputs=(0,))),
    KernelCall(kernel="conv", source_ops=("conv2",), edges=Edges()),
    KernelCall(kernel="pool", source_ops=("pool1",), edges=Edges(outputs=(0,))),
)
CODE = MachineCode(
    symbol="s", template="conv2d", threads=64, blocks=7, registers=40, shared_bytes=0,
    spilled_bytes=0, resident=8, multiprocessors=7, sm_warps=64,
)  # fmt: skip
KERNELS = (
    KernelIR(name="conv", tree=(), flops=6.0, bytes=2.0, products="tf32x3", code=CODE),
    KernelIR(name="pool", tree=(), kind="layout"),
)


class Machine:
    """A virtual machine whose program is a list of calls."""

    def __init__(self, program: tuple[str, ...]) -> None:
        self.program, self.instrument = program, None

    def __getitem__(self, _name: str) -> Callable[..., None]:
        return self.run

    def set_instrument(self, given: Callable[..., int] | None) -> None:
        self.instrument = given

    def run(self) -> None:
        assert self.instrument is not None
        self.instrument(None, "main", True, None)
        for name in self.program:
            self.instrument(None, name, True, None)
            self.instrument(None, name, False, None)
        self.instrument(None, "main", False, None)


class Events:
    """CUDA events on a device whose clock advances by a microsecond with each."""

    def __init__(self) -> None:
        self.alive, self.time_us, self.waits = 0, 0, 0

    def __call__(self) -> Any:
        self.alive += 1
        event = SimpleNamespace(at=0)

        def record() -> None:
            self.time_us += 1
            event.at = self.time_us

        def wait() -> None:
            self.waits += 1

        def close() -> None:
            self.alive -= 1

        event.record, event.wait, event.close = record, wait, close
        event.since_s = lambda earlier: (event.at - earlier.at) * 1e-6
        return event


PROGRAM = (
    "vm.builtin.alloc_storage", "conv", "vm.builtin.alloc_tensor", "conv", "vm.builtin.reshape",
    "pool",
)  # fmt: skip


def profiler(
    monkeypatch: pytest.MonkeyPatch, kind: str, program: tuple[str, ...] = PROGRAM
) -> vm.VmProfiler:
    monkeypatch.setattr(vm, "read_kernels", lambda path: KERNELS)
    machine: Any = Machine(program)
    artifact: Any = SimpleNamespace(
        graph=False, target=SimpleNamespace(kind=kind), kernels=CALLS, path=Path()
    )
    device: Any = SimpleNamespace(index=0)
    return vm.VmProfiler(LoadedArtifact(artifact, machine, device), [])


def test_a_gpus_kernels_are_timed_by_events_without_waiting_between_them(monkeypatch) -> None:
    events, used = Events(), []
    monkeypatch.setattr(tvm_marks.driver, "Event", events)
    monkeypatch.setattr(tvm_marks.load_model, "use_device", used.append)
    found = profiler(monkeypatch, "cuda")
    # events: the start, main, two per kernel and none for the VM's own functions, main, the end
    assert found.run() == pytest.approx(9e-6)
    assert (events.waits, events.alive, used) == (1, 0, [0])
    (trace,) = found.traces()
    assert [(s.kernel, s.source_ops) for s in trace.spans] == [
        ("conv", ("conv1",)), ("conv", ("conv2",)), ("pool", ("pool1",)),
    ]  # fmt: skip
    assert [s.edges for s in trace.spans] == [call.edges for call in CALLS]
    assert [s.seconds for s in trace.spans] == pytest.approx([1e-6] * 3)
    times = trace.device
    assert times is not None
    assert times.launches == 3
    assert times.gap_s == pytest.approx(2e-6)
    assert times.edge_s == pytest.approx(4e-6)
    assert trace.host_s == pytest.approx(6e-6)
    first, *_, pool = trace.spans
    assert (first.flops, first.products, first.resources) == (6.0, "tf32x3", CODE.resources)
    assert first.resources is not None
    assert first.resources.occupancy == 2 / 64  # one block of two warps per multiprocessor
    assert (pool.kind, pool.resources) == ("layout", None)


def test_on_the_cpu_kernels_and_gaps_are_the_run(monkeypatch) -> None:
    found = profiler(monkeypatch, "llvm")
    whole = found.run()
    (trace,) = found.traces()
    assert trace.device is None
    assert trace.host_s is not None
    assert sum(s.seconds for s in trace.spans) + trace.host_s == pytest.approx(whole)


def test_a_relax_function_around_the_vms_own_calls_is_no_kernel(monkeypatch) -> None:
    found = profiler(monkeypatch, "llvm", ("vm.builtin.alloc_storage",))
    found.run()
    with pytest.raises(RunError, match="saw no kernel"):
        found.traces()
