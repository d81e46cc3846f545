"""Loads a built kernel alone in a worker process, with its arguments, ready to be timed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.cuda.cubins import kernel_file
from tvmscope.errors import RunError
from tvmscope.measure.remote import here
from tvmscope.messages import msg
from tvmscope.runtime import load_model, tvm_compat
from tvmscope.runtime.weights import copies as stored_copies
from tvmscope.tuning.trials.unit_kernels import UnitKernel, UnitReference, load_unit

if TYPE_CHECKING:
    from tvm.runtime import Tensor

Arguments = tuple[tuple[tuple[int, ...], str], ...]
"""Shape and dtype of every argument of a kernel, its outputs last; see also `widened`."""
_WIDENED = "->float32"
Arrays = list[np.ndarray[Any, Any]]


def warm(device: str = "cpu") -> None:
    """Import the libraries for building; MetaSchedule's GPU traces refer to tensor intrinsics."""
    tvm_compat.import_tvm(torch=False)
    if device == "cuda":
        load_model.choose_cuda_compiler()
        tvm_compat.import_tensor_intrinsics()


WARM = here(warm)


@dataclass(frozen=True, kw_only=True)
class KernelRequest:
    """The arguments of `load`; they cross the process boundary."""

    library: Path
    args: Arguments
    seed: int
    threads: int
    device: str = "cpu"
    weights_bytes: int = 0
    """The size of the whole model's weights; 0 leaves the kernel's own in the caches."""


_LARGE_BYTES = 256 * 1024
"""Smaller arguments stay in a cache whatever else runs."""
_MOST_BYTES = 96 << 20
"""No cache is as large: more copies would change nothing."""
_FLUSHED_BYTES = 256 << 20
"""More than the second-level cache of any GPU."""
_VALUE_MS = 1
"""The least milliseconds of a GPU's value: an event waits for its first launch, microseconds."""


class _Kernel:
    """A loaded kernel with its arguments set; the worker times `run`."""

    def __init__(self, request: KernelRequest) -> None:
        tvm_compat.import_tvm(torch=False)
        import tvm

        tvm_compat.set_thread_count(tvm, request.threads)
        self.settings = {"threads": str(request.threads)}
        self._device = tvm.device(request.device)
        self._filled = [*fill(request.args, request.seed)]
        self._tensors = [tvm.runtime.tensor(array, self._device) for array in self._filled]
        self._turns = cycle(self._in_turn(request.weights_bytes))
        self._module = tvm.runtime.load_module(str(request.library))
        self._function = self._module["main"]

    def _in_turn(self, weights_bytes: int) -> list[list[Tensor]]:
        """Return sets of arguments with copies of the weights, in place of the model's others.

        In a model a kernel's weights come from the memory to which the other weights have evicted
        them, on a CPU in huge pages: without these a kernel with large weights seems slower.
        """
        result = self._filled[-1]
        weights = [
            i
            for i, array in enumerate(self._filled[1:-1], 1)
            if array.nbytes > _LARGE_BYTES and array.shape != result.shape
        ]
        size = sum(self._filled[i].nbytes for i in weights)
        count = max(1, min(weights_bytes, _MOST_BYTES) // size) if size and weights_bytes else 0
        turns = [[*self._tensors] for _ in range(max(1, count))]
        for i in weights if count else ():
            for turn, copy in zip(turns, self._copies(self._filled[i], count), strict=True):
                turn[i] = copy
        return turns

    def _copies(self, array: np.ndarray[Any, Any], count: int) -> list[Tensor]:
        from tvm import runtime

        native = array.dtype.kind in "fiu"  # numpy does not support others, such as bfloat16
        if native and self._device.type == "cpu":
            return [runtime.from_dlpack(copy) for copy in stored_copies(array, count)]
        return [runtime.tensor(array, self._device) for _ in range(count)]

    def run(self) -> None:
        self._function(*next(self._turns))

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all arguments that a call changes."""
        self._function(*self._tensors)
        return changed(self._filled, [tensor.numpy() for tensor in self._tensors])


class _CudaKernel(_Kernel):
    """A kernel on a GPU, timed by its own clock: CUDA events around consecutive launches."""

    def run(self) -> None:
        super().run()
        self._device.sync()

    def time(self, n: int, loops: int, cold: bool) -> list[float]:
        """Return `n` values of `loops` launches or more; `cold` empties the L2 cache for each."""
        evaluate = self._module.time_evaluator(
            "main",
            self._device,
            number=loops,
            repeat=n,
            min_repeat_ms=0 if cold else _VALUE_MS,
            cache_flush_bytes=_FLUSHED_BYTES if cold else 0,
        )
        return [float(value) for value in evaluate(*next(self._turns)).results]


def load(request: KernelRequest) -> _Kernel | UnitKernel | UnitReference:
    """Load the kernel that the request names."""
    if kernel_file.holds_unit(request.library):
        return load_unit(request.library, fill(request.args, request.seed))
    return _CudaKernel(request) if request.device == "cuda" else _Kernel(request)


LOAD = here(load)


def changed(before: Arrays, after: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arguments that a call has changed, by their index."""
    found = {
        str(i): new
        for i, (old, new) in enumerate(zip(before, after, strict=True))
        if not np.array_equal(old, new, equal_nan=new.dtype.kind == "f")
    }
    if not found:
        raise RunError(msg("the kernel changed none of its arguments"))
    return found


def fill(args: Arguments, seed: int) -> Arrays:
    """Return the same numbers for the same seed on every machine: in [-1, 1), integers 0 or 1."""
    rng = np.random.default_rng(seed)
    arrays = []
    for shape, kind in args:
        dtype = kind.removesuffix(_WIDENED)
        if dtype.startswith(("float", "bfloat")):
            wide = 2.0 * rng.random(shape, dtype=np.float32) - 1.0
            narrow = np.asarray(wide).astype(_numpy_dtype(dtype))
            arrays.append(narrow if kind == dtype else narrow.astype(np.float32))
        else:
            arrays.append(rng.integers(0, 2, shape).astype(dtype))
    return arrays


def widened(args: Arguments) -> Arguments:
    """Return arguments of the same values, half precision widened to single: see `build_plain`."""
    halves = ("float16", "bfloat16")
    return tuple((shape, dtype + _WIDENED * (dtype in halves)) for shape, dtype in args)


def _numpy_dtype(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(dtype)
