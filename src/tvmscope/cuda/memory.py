"""Memory of a CUDA device, through the driver."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tvmscope.cuda.driver import call
from tvmscope.errors import RunError

Array = np.ndarray[Any, Any]
_BLOCK_BYTES = 1 << 30
_MOST_BLOCKS = 16
_NAN = 0xFF
"""A byte of which every float format makes NaN."""


def use_device(index: int = 0) -> None:
    """Make the device's primary context current in this thread."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)


class Memory:
    """Device memory, freed with the object."""

    def __init__(self, size_bytes: int) -> None:
        self._at = ctypes.c_uint64()
        self.size_bytes = size_bytes
        call("cuMemAlloc_v2", ctypes.byref(self._at), ctypes.c_size_t(max(16, size_bytes)))

    @property
    def pointer(self) -> int:
        """The address on the device."""
        return int(self._at.value)

    def write(self, values: Array) -> None:
        """Copy an array to the device."""
        data = np.ascontiguousarray(values)
        call("cuMemcpyHtoD_v2", self._at, data.ctypes.data_as(ctypes.c_void_p), data.nbytes)
        call("cuCtxSynchronize")  # kernels run on a stream that does not wait for small copies

    def read(self, like: Array) -> Array:
        """Return a new array with the memory's contents, in the shape and type of `like`."""
        data = np.empty_like(like)
        call("cuMemcpyDtoH_v2", data.ctypes.data_as(ctypes.c_void_p), self._at, data.nbytes)
        return data

    def clear(self, byte: int = 0) -> None:
        """Set all bytes to one value."""
        call("cuMemsetD8_v2", self._at, ctypes.c_ubyte(byte), ctypes.c_size_t(self.size_bytes))
        call("cuCtxSynchronize")  # it returns before the bytes are written

    def __del__(self) -> None:
        if self._at.value:
            call("cuMemFree_v2", self._at)


def spoil_free(index: int = 0) -> int:
    """Fill free memory with NaN: half of it, at most 16 GiB; return the bytes.

    A driver does not clear memory. A process gets the memory of the one before it, with the results
    that the same model left there: a kernel that does nothing would seem to be right.
    """
    use_device(index)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    blocks: list[Memory] = []
    try:
        for _ in range(min(_MOST_BLOCKS, free.value // 2 // _BLOCK_BYTES)):
            blocks.append(Memory(_BLOCK_BYTES))
            blocks[-1].clear(_NAN)
    except RunError:  # another process took it meanwhile
        pass
    return len(blocks) * _BLOCK_BYTES
