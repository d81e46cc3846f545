"""Reads the GPU's properties directly from the NVIDIA driver, without torch, CUDA toolkit or
TVM."""

from __future__ import annotations

import ctypes
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


@dataclass(frozen=True)
class CudaDevice:
    """The driver's description of one GPU."""

    name: str
    arch: str
    driver: str
    memory_bytes: int
    attrs: dict[str, int]


def find(index: int = 0) -> CudaDevice | None:
    """Return the GPU number `index`, or None if there is no driver or no such device."""
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
    )
