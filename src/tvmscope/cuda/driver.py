"""Calls the CUDA driver through ctypes: loads a cubin, launches its kernel on a stream.

It needs a current context (such as PyTorch's or TVM's primary one) and nothing else. Every call's
status is checked; a kernel's error appears at the next call that waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from tvmscope.errors import BackendUnavailable, RunError
from tvmscope.messages import msg

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEPENDENT_LAUNCH = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_STATIC_SHARED_BYTES = 48 * 1024
_RECORD_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL
_NOT_CAPTURING = 0  # CU_STREAM_CAPTURE_STATUS_NONE


class _Attribute(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int * 16),
    )


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise BackendUnavailable(
            msg("no CUDA driver on this machine: {reason}", reason=str(e))
        ) from e


def call(name: str, *args: Any) -> None:
    """Call a driver function by name; raise `RunError` for any status but success."""
    status = int(getattr(_library(), name)(*args))
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, ctypes.byref(text))
        raise RunError(
            msg(
                "{name}: {reason} ({status})",
                name=name,
                reason=(text.value or b"unknown error").decode(),
                status=status,
            )
        )


def fill(pointer: int, size_bytes: int, byte: int) -> None:
    """Set bytes of device memory in the current context, and wait."""
    value, size = ctypes.c_ubyte(byte), ctypes.c_size_t(size_bytes)
    call("cuMemsetD8_v2", ctypes.c_uint64(pointer), value, size)
    call("cuCtxSynchronize")  # it returns before the bytes are written


def is_capturing(stream: int) -> bool:
    """Whether what a stream is given becomes part of a CUDA graph, instead of being run."""
    status = ctypes.c_int()
    call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
    return status.value != _NOT_CAPTURING


class Event:
    """A time on a stream of the current context; the default one is that of TVM's kernels."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(self._handle), ctypes.c_uint(0))

    def record(self, stream: int = 0) -> None:
        """Queue it behind everything that the stream was given."""
        call("cuEventRecord", self._handle, ctypes.c_void_p(stream))

    def record_in_graph(self, stream: int) -> None:
        """Make it a node of the graph that the stream captures; each launch of it writes the
        time."""
        flags = ctypes.c_uint(_RECORD_EXTERNAL)
        call("cuEventRecordWithFlags", self._handle, ctypes.c_void_p(stream), flags)

    def wait(self) -> None:
        """Return once the device has reached it."""
        call("cuEventSynchronize", self._handle)

    def since_s(self, earlier: Event) -> float:
        """Return the seconds on the device from another event to this one."""
        elapsed_ms = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(elapsed_ms), earlier._handle, self._handle)
        return elapsed_ms.value * 1e-3

    def close(self) -> None:
        """Free it."""
        call("cuEventDestroy_v2", self._handle)


class Kernel:
    """A loaded kernel and its launch arguments, which it keeps alive."""

    def __init__(
        self,
        cubin: bytes,
        name: str,
        *,
        grid: tuple[int, int, int],
        threads: int | tuple[int, int, int],
        shared_bytes: int,
        dependent: bool = False,
    ) -> None:
        self._cubin = cubin
        self._module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name.encode())
        if shared_bytes > _STATIC_SHARED_BYTES:
            call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, shared_bytes)
        self._attribute = _Attribute(id=_DEPENDENT_LAUNCH)
        self._attribute.value[0] = 1
        self._config = _LaunchConfig(
            grid=grid,
            block=(threads, 1, 1) if isinstance(threads, int) else threads,
            shared_bytes=shared_bytes,
            attributes=ctypes.pointer(self._attribute) if dependent else None,
            attribute_count=1 if dependent else 0,
        )

    def launch(self, pointers: Sequence[int], stream: int = 0) -> None:
        """Queue one run; all arguments are device pointers."""
        values = (ctypes.c_void_p * len(pointers))(*pointers)
        each = ctypes.sizeof(ctypes.c_void_p)
        base = ctypes.addressof(values)
        arguments = (ctypes.c_void_p * len(pointers))(
            *(base + i * each for i in range(len(pointers)))
        )
        self._config.stream = stream
        call("cuLaunchKernelEx", ctypes.byref(self._config), self._function, arguments, None)

    def close(self) -> None:
        """Unload it; the context must still exist."""
        if self._module:
            call("cuModuleUnload", self._module)
            self._module = ctypes.c_void_p()
