"""A loaded artifact, which is called with arrays.

Loading an artifact runs machine code from its `model.so`: load only what you trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.artifact import Artifact
from tvmscope.core.model import TensorSpec
from tvmscope.cuda import driver
from tvmscope.errors import RunError, TvmscopeError, UsageError, one_line
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.messages import msg
from tvmscope.runtime import cubins, cuda_errors, fallback, load_model, tvm_compat, weights
from tvmscope.runtime.artifact import LIBRARY, WEIGHTS, read
from tvmscope.runtime.check import check

if TYPE_CHECKING:
    from tvm.runtime import Device, Module
    from tvm.runtime.vm import VirtualMachine

_ALLOCATED = "vm.builtin.alloc_tensor"
_PAGE_BYTES = 4096
"""The VM's pool allocates whole pages, and gives them to any tensor that needs as many."""
_NAN = 0xFF
"""A byte that makes NaN in every floating-point type."""


class LoadedArtifact:
    """A callable model: numpy arrays or DLPack tensors in, numpy arrays out, by output name."""

    def __init__(
        self,
        artifact: Artifact,
        machine: VirtualMachine,
        device: Device,
        ways: Mapping[str, fallback.Way] | None = None,
        library: Module | None = None,
    ) -> None:
        self.artifact = artifact
        self._library = library
        self.ways = dict(ways or {})
        """How the parts that run in a framework get their tensors."""
        self.device = device
        self.machine = machine
        self._main = machine["main"]

    def afresh(self) -> LoadedArtifact:
        """Return the same code on a machine of its own, which has captured no CUDA graph yet; its
        weights are loaded again."""
        machine = _start(self._library, self.artifact, self.device)
        return LoadedArtifact(self.artifact, machine, self.device, self.ways, self._library)

    @property
    def stream(self) -> int:
        """The stream that TVM launches kernels on now; it captures a graph on one of its own."""
        import tvm_ffi

        device: Any = self.device  # to type checkers it is not tvm_ffi's
        return tvm_ffi.get_raw_stream(device)

    def place(self, arrays: Mapping[str, Any]) -> list[Any]:
        """Check the inputs against the artifact and copy them to the device, in order."""
        specs = self.artifact.inputs
        unknown = sorted(set(arrays) - {s.name for s in specs})
        missing = [s.name for s in specs if s.name not in arrays]
        if unknown or missing:
            wanted = [s.name for s in specs]
            problem = (
                msg("missing {missing}", missing=missing)
                if missing
                else msg("unknown {unknown}", unknown=unknown[0])
            )
            raise UsageError(
                msg(
                    "inputs do not fit ({problem}); the model takes: {wanted}",
                    problem=problem,
                    wanted=wanted,
                )
            )
        with self.explained():
            return [self._place_one(spec, arrays[spec.name]) for spec in specs]

    def _place_one(self, spec: TensorSpec, value: Any) -> Any:
        tensor = self._import(spec, value) if hasattr(value, "__dlpack__") else np.asarray(value)
        shape, dtype = tuple(int(d) for d in tensor.shape), str(tensor.dtype)
        if shape != spec.shape or dtype != spec.dtype:
            raise UsageError(
                msg(
                    "input '{name}' must be {wanted}, got {given}",
                    name=spec.name,
                    wanted=f"{spec.dtype}{list(spec.shape)}",
                    given=f"{dtype}{list(shape)}",
                )
            )
        if isinstance(tensor, np.ndarray):
            # not ascontiguousarray, which turns a scalar into a vector
            from tvm import runtime

            return runtime.tensor(np.asarray(tensor, order="C"), self.device)
        return tensor if tensor.device == self.device else tensor.copyto(self.device)

    def _import(self, spec: TensorSpec, value: Any) -> Any:
        """Return a view of the tensor if TVM can take one; else (unaligned, strided) an array."""
        if isinstance(value, np.ndarray):
            return value
        with contextlib.suppress(Exception):  # numpy's error below is the better one
            from tvm import runtime

            return runtime.from_dlpack(value)
        try:
            return np.from_dlpack(value)
        except Exception as e:  # each library has its own reasons, from gradients to devices
            raise UsageError(
                msg(
                    "input '{name}' cannot be taken by DLPack: {reason}; give a contiguous tensor, "
                    "or a numpy array",
                    name=spec.name,
                    reason=one_line(e),
                )
            ) from e

    def run(self, placed: list[Any]) -> Any:
        """Run once on placed inputs; return TVM tensors without waiting for a GPU."""
        try:
            return self._main(*placed)
        except Exception as e:  # TVM raises its own types, and those of parts in a framework
            if (meaning := cuda_errors.meaning(e, self.artifact)) is None:
                raise
            raise meaning from e

    def wait(self) -> None:
        """Wait for the device; a kernel that failed reports its error here at the latest."""
        with self.explained():
            self.device.sync()

    def explained(self) -> AbstractContextManager[None]:
        """Return a block whose CUDA errors say what they mean and what to do."""
        return cuda_errors.explained(self.artifact)

    @contextlib.contextmanager
    def instrumented(self, instrument: Callable[..., int]) -> Iterator[None]:
        """Let the VM call the instrument before and after each call.

        No garbage is collected meanwhile: a collection might free memory while a graph is captured,
        which ends that.
        """
        collects = gc.isenabled()
        self.machine.set_instrument(instrument)
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
            self.machine.set_instrument(None)

    def run_and_spoil(self, placed: list[Any]) -> int:
        """Run once, then fill with NaN all memory that the run has allocated; return the bytes.

        The next run gets the same memory, and so does every run of a CUDA graph that this one has
        recorded. Without it, a kernel that does nothing would leave what was there before: on a GPU
        the results of an earlier process, which may be the right ones. Call it twice: the VM holds
        its last result, so that results alternate between two places.
        """
        tensors: list[Any] = []  # they keep the memory, until it is filled

        def keep(_function: Any, name: str, before: bool, result: Any, *args: Any) -> int:
            if not before and name == _ALLOCATED and args[1] == 0:  # where its storage begins
                tensors.append(result)
            return 0

        with self.instrumented(keep):
            self.run(placed)
        if self.artifact.target.kind == "cuda":
            self.wait()
            load_model.use_device(self.device.index)
        return sum(_spoil(tensor) for tensor in tensors)

    def name_outputs(self, result: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return results as numpy arrays by output name."""
        values = [result] if hasattr(result, "numpy") else list(result)
        pairs = zip(self.artifact.outputs, values, strict=True)
        with self.explained():
            return {spec.name: value.numpy() for spec, value in pairs}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Run with inputs by position or by name."""
        if len(args) > len(self.artifact.inputs):
            raise UsageError(
                msg(
                    "the model takes {count} inputs, got {given}",
                    count=len(self.artifact.inputs),
                    given=len(args),
                )
            )
        named = {spec.name: a for spec, a in zip(self.artifact.inputs, args, strict=False)}
        if twice := named.keys() & kwargs.keys():
            raise UsageError(
                msg(
                    "input '{name}' is given by position and by name; give it once",
                    name=min(twice),
                )
            )
        return self.name_outputs(self.run(self.place(named | kwargs)))


def _spoil(tensor: Any) -> int:
    """Fill a tensor's pages with NaN; return their size. Some of a GPU's model lie on the host."""
    size_bytes: int = prod(tensor.shape) * tensor.dtype.itemsize
    size = ceil(size_bytes / _PAGE_BYTES) * _PAGE_BYTES
    if tensor.device.type == "cuda":
        driver.fill(tensor.data_ptr(), size, _NAN)
    else:
        ctypes.memset(tensor.data_ptr(), _NAN, size)
    return size


def load_callable(
    folder: Path,
    *,
    threads: int | None = None,
    arrays: Sequence[Any] | None = None,
    gpu: int | None = None,
) -> LoadedArtifact:
    """Check an artifact and load it; `threads` defaults to all usable cores.

    `arrays` are its weights, if they are already loaded; `gpu` is the number of one of several.
    """
    artifact = replace(read(folder), path=folder)
    with cuda_device.chosen(gpu):
        check(artifact, weights_apart=arrays is not None)
    tvm_compat.import_tvm(torch=False)
    import tvm

    built = artifact.versions.get("tvm")
    if built != tvm.__version__:
        raise RunError(
            msg(
                "{folder} was built with TVM {built}, this is TVM {version}; compile the model "
                "again, or install that version",
                folder=folder,
                built=str(built),
                version=tvm.__version__,
            )
        )
    if load_model.is_crowded():
        os.environ.setdefault(load_model.SPIN_COUNT, "0")
    tvm_compat.set_thread_count(tvm, threads or cpu_features.usable_cores())
    device = tvm.cpu(0)
    if artifact.target.kind == "cuda":
        load_model.choose_cuda_compiler()
        device = tvm.cuda(gpu or 0)
    used = threads or cpu_features.usable_cores()
    parts = [(part, (folder / part.file).read_bytes()) for part in artifact.fallbacks]
    ways = fallback.register(parts, used, None if artifact.target.kind == "llvm" else device)
    try:
        cubins.register(tvm, folder, gpu or 0)
        library = tvm.runtime.load_module(str(folder / LIBRARY))
    except TvmscopeError:
        raise
    except Exception as e:  # the loader raises RuntimeError and its own error types
        raise _unloadable(artifact, folder / LIBRARY, e) from e
    machine = _start(library, artifact, device, arrays)
    return LoadedArtifact(artifact, machine, device, ways, library)


def _start(
    library: Any, artifact: Artifact, device: Device, arrays: Sequence[Any] | None = None
) -> VirtualMachine:
    """Make a machine that runs a loaded library, with the weights bound."""
    from tvm.runtime.vm import VirtualMachine  # tvm.relax would need the compiler

    try:
        machine = VirtualMachine(library, device)
    except Exception as e:  # TVM raises its own types
        raise _unloadable(artifact, artifact.path / LIBRARY, e) from e
    if artifact.stored:
        _bind_weights(machine, artifact, artifact.path / WEIGHTS, arrays)
    return machine


def _bind_weights(
    machine: VirtualMachine, artifact: Artifact, file: Path, arrays: Sequence[Any] | None
) -> None:
    """Replace `main` by a function that takes inputs only, with the weights bound after them."""
    from tvm import runtime

    try:
        found = weights.load(artifact.stored, file) if arrays is None else arrays
        tensors = [runtime.from_dlpack(array) for array in found]
        machine.save_function("main", "main", *tensors)
    except Exception as e:  # numpy and TVM have their own types for a mismatch
        raise _unloadable(artifact, file, e) from e


def _unloadable(artifact: Artifact, file: Path, error: Exception) -> RunError:
    return cuda_errors.meaning(error, artifact) or RunError(
        msg(
            "{file} cannot be loaded: {reason}; compile the model again",
            file=file,
            reason=one_line(error),
        )
    )
