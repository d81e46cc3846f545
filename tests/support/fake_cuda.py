"""A CUDA driver and an NVML with made-up GPUs, where there are none."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest

NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """What the driver says about one GPU."""

    name: str
    arch: int = 90
    multiprocessors: int = 132
    l2_bytes: int = 60 << 20
    shared_bytes: int = 227 << 10
    bus: str = "0000:01:00.0"


SMALL = FakeGpu(
    name="RTX 3060", arch=86, multiprocessors=28, l2_bytes=3 << 20, shared_bytes=99 << 10,
    bus="0000:81:00.0",
)  # fmt: skip
LARGE = FakeGpu(name="NVIDIA H200")


class FakeDriver:
    """libcuda.so.1, for what `machine.cuda_device` asks."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus

    def cuInit(self, _flags: int) -> int:  # noqa: N802 - CUDA's names
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = len(self.gpus)
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:  # noqa: N802
        out._obj.value = index
        return 0

    def cuDeviceGetName(self, out: Any, _size: int, device: Any) -> int:  # noqa: N802
        out.value = self.gpus[device.value].name.encode()
        return 0

    def cuDeviceGetPCIBusId(self, out: Any, _size: int, device: Any) -> int:  # noqa: N802
        out.value = self.gpus[device.value].bus.encode()
        return 0

    def cuDeviceTotalMem_v2(self, out: Any, _device: Any) -> int:  # noqa: N802
        out._obj.value = 12 << 30
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = 13000
        return 0

    def cuDeviceGetAttribute(self, out: Any, number: int, device: Any) -> int:  # noqa: N802
        gpu = self.gpus[device.value]
        known = {
            75: gpu.arch // 10, 76: gpu.arch % 10, 16: gpu.multiprocessors, 38: gpu.l2_bytes,
            97: gpu.shared_bytes, 8: 48 << 10, 1: 1024, 10: 32, 12: 65536,
        }  # fmt: skip
        out._obj.value = known[number]
        return 0


class FakeNvml:
    """libnvidia-ml.so.1, which knows GPUs by their places on the bus."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, out: Any) -> int:  # noqa: N802
        places = [gpu.bus.encode() for gpu in self.gpus]
        if bus not in places:
            return NOT_FOUND
        out._obj.value = places.index(bus) + 1
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, _kind: int, out: Any) -> int:  # noqa: N802
        out._obj.value = 1000 * handle.value
        return 0


def install(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu) -> None:
    """Let this process find these GPUs; NVML has them in the opposite order."""
    real, found = ctypes.CDLL, {"libcuda.so.1": FakeDriver(*gpus)}
    nvml = FakeNvml(*reversed(gpus))
    libraries: dict[str | None, Any] = {**found, "libnvidia-ml.so.1": nvml}

    def load(name: str | None, *args: Any, **kw: Any) -> Any:
        return libraries[name] if name in libraries else real(name, *args, **kw)

    monkeypatch.setattr(ctypes, "CDLL", load)


CAPTURES, INVALID_VALUE, NOT_RECORDED = 900, 1, 400
"""CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, _INVALID_VALUE, _INVALID_HANDLE"""
EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL


class FakeTimeline:
    """libcuda.so.1, for events on streams and in graphs; a kernel takes the microseconds said.

    While a stream is captured, what it is given is kept for the graph, an event must be recorded
    as a node, and none may be created.
    """

    def __init__(self) -> None:
        self.now_us = 0.0
        self.alive: set[int] = set()
        self.times_us: dict[int, float] = {}
        self.capturing: int | None = None
        self._made = 0
        self._graph: list[tuple[str, float]] = []

    def begin(self, stream: int) -> None:
        self.capturing, self._graph = stream, []

    def end(self) -> list[tuple[str, float]]:
        self.capturing = None
        return self._graph

    def kernel(self, duration_us: float) -> None:
        self._give("kernel", duration_us)

    def launch(self, graph: list[tuple[str, float]]) -> None:
        for what, value in graph:
            self._give(what, value)

    def _give(self, what: str, value: float) -> None:
        if self.capturing is not None:
            self._graph.append((what, value))
        elif what == "kernel":
            self.now_us += value
        else:
            self.times_us[int(value)] = self.now_us

    def cuEventCreate(self, out: Any, _flags: Any) -> int:  # noqa: N802 - CUDA's names
        if self.capturing is not None:
            return CAPTURES
        self._made += 1
        self.alive.add(self._made)
        out._obj.value = self._made
        return 0

    def cuEventRecord(self, event: Any, _stream: Any) -> int:  # noqa: N802
        if self.capturing is not None:
            return CAPTURES
        self._give("event", event.value)
        return 0

    def cuEventRecordWithFlags(self, event: Any, stream: Any, flags: Any) -> int:  # noqa: N802
        if flags.value != EXTERNAL or self.capturing is None or stream.value != self.capturing:
            return INVALID_VALUE
        self._give("event", event.value)
        return 0

    def cuStreamIsCapturing(self, stream: Any, out: Any) -> int:  # noqa: N802
        if self.capturing is not None and not stream.value:
            return CAPTURES
        out._obj.value = int(stream.value is not None and stream.value == self.capturing)
        return 0

    def cuEventSynchronize(self, event: Any) -> int:  # noqa: N802
        return 0 if event.value in self.times_us else NOT_RECORDED

    def cuEventElapsedTime(self, out: Any, first: Any, last: Any) -> int:  # noqa: N802
        if not {first.value, last.value} <= self.times_us.keys():
            return NOT_RECORDED
        out._obj.value = (self.times_us[last.value] - self.times_us[first.value]) * 1e-3
        return 0

    def cuEventDestroy_v2(self, event: Any) -> int:  # noqa: N802
        self.alive.remove(event.value)
        return 0

    def cuGetErrorString(self, _status: int, out: Any) -> int:  # noqa: N802
        out._obj.value = b"refused"
        return 0
