"""Runs and times one compiled kernel on a GPU, with the driver alone, or a library's call.

A timed graph has ten launches, each with its own copy of the weights. Before each graph the L2
cache is filled with other data, as in a network whose weights exceed it, and the other inputs are
read, as if the previous kernel had just written them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from tvmscope.cuda.binding import bind
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.driver import Kernel, call, fill
from tvmscope.cuda.library import cublaslt, cudnn
from tvmscope.cuda.library.call import LibraryCall
from tvmscope.cuda.library.convolution import ConvolutionCall
from tvmscope.cuda.units import Unit
from tvmscope.errors import RunError
from tvmscope.messages import msg

Array = np.ndarray[Any, Any]
LAUNCHES = 10
_FILL_BYTES = 192 << 20
"""More than the L2 cache of any GPU."""
_TOUCHED_BYTES = 32 << 20
_READ_THREADS = 256
_READ_BLOCKS = 1024
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_READ = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry read_all(.param .u64 start, .param .u64 count) {
    .reg .pred %p;
    .reg .b32 %r<10>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [start];
    ld.param.u64 %d1, [count];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %nctaid.x;
    mad.lo.u32 %r4, %r0, %r1, %r2;
    mul.lo.u32 %r5, %r1, %r3;
    cvt.u64.u32 %d2, %r4;
    cvt.u64.u32 %d3, %r5;
LOOP:
    setp.ge.u64 %p, %d2, %d1;
    @%p bra END;
    shl.b64 %d4, %d2, 4;
    add.u64 %d5, %d0, %d4;
    ld.volatile.global.v4.u32 {%r6, %r7, %r8, %r9}, [%d5];
    add.u64 %d2, %d2, %d3;
    bra LOOP;
END:
    ret;
}
"""
"""Reads memory, 16 bytes per thread: dirty lines would be written back during the kernel's time."""


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

    def clear(self) -> None:
        """Set all bytes to zero."""
        fill(self.pointer, self.size_bytes, 0)

    def __del__(self) -> None:
        if self._at.value:
            call("cuMemFree_v2", self._at)


def loaded(kernel: CompiledKernel | LibraryCall) -> Kernel | cublaslt.Product | cudnn.Convolution:
    """Return the object that launches it, in the current context."""
    if isinstance(kernel, CompiledKernel):
        return Kernel(
            kernel.cubin,
            kernel.name,
            grid=kernel.grid,
            threads=kernel.threads,
            shared_bytes=kernel.shared_bytes,
            dependent=kernel.config.pdl > 0,
        )
    try:
        if isinstance(kernel, ConvolutionCall):
            return _cudnn().convolution(kernel.to_json(), strict=True)
        return _cublaslt().product(kernel.to_json(), strict=True)
    except (cublaslt.LibraryError, cudnn.LibraryError) as e:
        raise RunError(msg("{call}: {reason}", call=kernel.config.label, reason=str(e))) from e


@cache
def _cublaslt() -> cublaslt.Library:
    return cublaslt.Library()


@cache
def _cudnn() -> cudnn.Library:
    return cudnn.Library()


class KernelBench:
    """A kernel with its tensors on the device, by role; the weight is packed."""

    def __init__(
        self, unit: Unit, kernel: CompiledKernel | LibraryCall, tensors: Mapping[str, Array]
    ) -> None:
        use_device()
        self._tensors = dict(tensors)
        self._kernel = loaded(kernel)
        arguments = bind(unit, kernel.config).arguments
        self._roles = [t.role for t in arguments]
        self._memory = {t.role: Memory(t.size_bytes) for t in arguments}
        for tensor in arguments:
            role = tensor.role
            if role in tensors:
                self._memory[role].write(tensors[role].astype(tensor.dtype, copy=False))
            else:
                self._memory[role].clear()  # counters start at zero
        self._weights = [self._memory["weight"]] if "weight" in self._memory else []
        self._hidden = [0] * kernel.hidden_pointers
        self._stream = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        self._graph: ctypes.c_void_p | None = None

    def output(self) -> Array:
        """Return the output of one launch; the memory has the given values before it."""
        given = self._tensors["output"]
        self._memory["output"].write(given)
        self._launch(0)
        self._wait()
        return self._memory["output"].read(given)

    def time(self, values: int, launches: int) -> list[float]:
        """Return `values` times in seconds, each the mean of `launches` or more."""
        graphs = ceil(launches / LAUNCHES)
        graph = self._graph = self._graph or self._captured()
        self._fill = getattr(self, "_fill", None) or _Reader()
        return [sum(self._one(graph) for _ in range(graphs)) / graphs for _ in range(values)]

    def _one(self, graph: ctypes.c_void_p) -> float:
        self._fill.read_all(self._fill.memory, self._stream)
        for role, memory in self._memory.items():
            if role != "weight":
                self._fill.read_all(memory, self._stream)
        before, after = _event(), _event()
        call("cuEventRecord", before, self._stream)
        call("cuGraphLaunch", graph, self._stream)
        call("cuEventRecord", after, self._stream)
        self._wait()
        elapsed_ms = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(elapsed_ms), before, after)
        for event in (before, after):
            call("cuEventDestroy_v2", event)
        return elapsed_ms.value * 1e-3 / LAUNCHES

    def _captured(self) -> ctypes.c_void_p:
        """Return a graph of launches, each with its own copy of the weight."""
        weight = self._tensors.get("weight")
        if weight is not None and self._weights:
            for _ in range(LAUNCHES - 1):
                self._weights.append(Memory(weight.nbytes))
                self._weights[-1].write(weight)
        for i in range(2):  # lazily loaded code must be loaded before a capture
            self._launch(i)
        self._wait()
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        for i in range(LAUNCHES):
            self._launch(i)
        call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        call("cuGraphDestroy", graph)
        call("cuGraphLaunch", ready, self._stream)
        self._wait()
        return ready

    def _launch(self, turn: int) -> None:
        memory = dict(self._memory)
        if self._weights:
            memory["weight"] = self._weights[turn % len(self._weights)]
        pointers = [memory[role].pointer for role in self._roles] + self._hidden
        self._kernel.launch(pointers, int(self._stream.value or 0))

    def _wait(self) -> None:
        call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free the graph, the stream and the kernel; memory is freed with its objects."""
        if self._graph is not None:
            call("cuGraphExecDestroy", self._graph)
        call("cuStreamDestroy_v2", self._stream)
        self._kernel.close()


class _Reader:
    """Memory larger than the L2 cache, and a kernel that reads memory."""

    def __init__(self) -> None:
        self.memory = Memory(_FILL_BYTES)
        self.memory.clear()
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(_READ))
        call("cuModuleGetFunction", ctypes.byref(self._function), self._module, b"read_all")

    def read_all(self, memory: Memory, stream: ctypes.c_void_p) -> None:
        """Read the beginning of the memory through the L2 cache."""
        most = memory.size_bytes if memory is self.memory else _TOUCHED_BYTES
        start = ctypes.c_uint64(memory.pointer)
        count = ctypes.c_uint64(min(memory.size_bytes, most) // 16)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(start), ctypes.addressof(count))
        sizes = (_READ_BLOCKS, 1, 1, _READ_THREADS, 1, 1, 0)
        call("cuLaunchKernel", self._function, *sizes, stream, values, None)


def _event() -> ctypes.c_void_p:
    event = ctypes.c_void_p()
    call("cuEventCreate", ctypes.byref(event), 0)
    return event
