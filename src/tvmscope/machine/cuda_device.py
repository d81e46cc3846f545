"""Reads the GPU's properties directly from the NVIDIA driver, without torch, CUDA toolkit or
TVM, and holds which GPU this process's jobs run on.

Libraries number the GPUs by rules of their own, and most take the first by default. A job on
another GPU therefore shows its workers that GPU alone, so that it is number 0 for all of them; this
process asks for the properties of the same GPU.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

# CUdevice_attribute numbers, from the driver API's reference.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "max_shared_memory_per_block": 8,
    "thread_warp_size": 10,
    "registers_per_block": 12,
    "multiprocessors": 16,
    "l2_cache_size_bytes": 38,
    "max_shared_memory_per_block_optin": 97,
}
_MAJOR, _MINOR = 75, 76
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""CUDA's variable: the GPUs that a process sees, by number or UUID; it numbers them from 0."""


@dataclass(frozen=True)
class CudaDevice:
    """The driver's description of one GPU."""

    name: str
    arch: str
    driver: str
    memory_bytes: int
    attrs: dict[str, int]
    pci_bus: str = ""
    """Its place, by which NVML finds the same GPU: NVML's numbers are others."""


_chosen: int | None = None


@contextmanager
def chosen(index: int | None) -> Iterator[None]:
    """Run the jobs inside on this GPU; None changes nothing."""
    global _chosen
    before, _chosen = _chosen, _chosen if index is None else index
    try:
        yield
    finally:
        _chosen = before


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables by which a child process sees the chosen GPU alone; none without one."""
    if _chosen is None:
        return {}
    seen = [part.strip() for part in given.get(VISIBLE, "").split(",")]
    return {VISIBLE: seen[_chosen] if _chosen < len(seen) and any(seen) else str(_chosen)}


def find_all() -> tuple[CudaDevice, ...]:
    """Return all GPUs that this process sees, in the order of their numbers."""
    found: list[CudaDevice] = []
    while (device := find(len(found))) is not None:
        found.append(device)
    return tuple(found)


def find(index: int | None = None) -> CudaDevice | None:
    """Return the GPU number `index`, by default the chosen one or the first; None if there is no
    driver or no such device."""
    index = index if index is not None else _chosen or 0
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value <= index:
        return None
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        return None
    name, memory = ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 256, device)
    bus = ctypes.create_string_buffer(32)
    cuda.cuDeviceGetPCIBusId(bus, 32, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return CudaDevice(
        name=name.value.decode(errors="replace"),
        arch=f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        driver=f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        memory_bytes=memory.value,
        attrs={key: attribute(number) for key, number in _ATTRIBUTES.items()},
        pci_bus=bus.value.decode(errors="replace"),
    )
