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
