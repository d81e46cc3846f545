"""Runs parts of a model in a framework, through packed functions that compiled code calls.

Tensors are shared, not copied: the framework reads the memory of TVM's tensors. ONNX Runtime writes
into tensors that TVM has allocated; TVM reads the memory of PyTorch's results. For a model on a
GPU, `fallback_gpu` chooses between PyTorch on that GPU and copies to the host.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from tvmscope.core.artifact import FRAMEWORKS, Fallback
from tvmscope.errors import RunError, one_line
from tvmscope.extras import install
from tvmscope.messages import msg
from tvmscope.runtime import fallback_gpu
from tvmscope.runtime.framework_call import Compute, torch_call
from tvmscope.runtime.torchvision_operators import make_importable

FILES = "region_*"
"""Files with the models of an artifact's parts, in its folder."""

SLEEP_SOON = {"GOMP_SPINCOUNT": "1000"}
"""How often threads of PyTorch's OpenMP look for work before they sleep; read when it is loaded.
Otherwise they look for milliseconds, and keep cores from the compiled kernels that follow."""

Way = Literal["shared", "gpu", "copied"]
"""How a part gets its tensors: the host's memory is shared, or the GPU's, or it is copied to the
host and back."""


def register(
    parts: Iterable[tuple[Fallback, bytes]], threads: int | None = None, device: Any = None
) -> dict[str, Way]:
    """Let compiled code find the functions of its parts; returns how each gets its tensors.

    `device` is TVM's device that the tensors are on, the CPU where none is given.
    """
    import tvm_ffi

    ways: dict[str, Way] = {}
    for part, model in parts:
        for name, value in SLEEP_SOON.items():
            os.environ.setdefault(name, value)
        function, ways[part.name] = _function(part, model, threads, device)
        tvm_ffi.register_global_func(part.name, function, override=True)
    return ways


def _function(
    part: Fallback, model: bytes, threads: int | None, device: Any
) -> tuple[Callable[..., Any], Way]:
    if device is not None and part.framework == "torch":
        place = fallback_gpu.place_of(device)
        run = fallback_gpu.in_torch(load_program(part, model), device, place) if place else None
        if run is not None:
            return run, "gpu"
    make = _in_torch if part.framework == "torch" else _in_onnx_runtime
    compute = make(part, model, threads)
    if device is None:
        return compute.call, "shared"
    return fallback_gpu.through_host(part.name, compute, device), "copied"


def _missing(part: Fallback, error: ImportError) -> RunError:
    return RunError(
        msg(
            "{operators} run in {framework}, which does not load ({reason}): {install}",
            operators=list(part.operators),
            framework=FRAMEWORKS[part.framework],
            reason=one_line(error),
            install=install("torch" if part.framework == "torch" else "tvm"),
        )
    )


def _refused(part: Fallback, error: Exception) -> RunError:
    return RunError(
        msg(
            "{framework} cannot load {operators}: {reason}",
            framework=FRAMEWORKS[part.framework],
            operators=list(part.operators),
            reason=one_line(error),
        )
    )


def load_program(part: Fallback, model: bytes) -> Any:
    """The exported program of a part in PyTorch."""
    try:
        import torch
    except ImportError as e:
        raise _missing(part, e) from e
    make_importable()
    try:
        return torch.export.load(io.BytesIO(model))
    except Exception as e:  # torch raises its own and plain errors alike
        raise _refused(part, e) from e


def _in_torch(part: Fallback, model: bytes, threads: int | None) -> Compute:
    program = load_program(part, model)
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    return Compute(torch_call(program))


def _in_onnx_runtime(part: Fallback, model: bytes, threads: int | None) -> Compute:
    try:
        import onnxruntime as ort
    except ImportError as e:
        raise _missing(part, e) from e
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    # spinning threads would take the cores from the kernels that follow
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime has a dozen error classes without a common base
        raise _refused(part, e) from e
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]

    def into(*tensors: Any) -> None:
        """Run with the inputs first, then the buffers of the results."""
        binding = session.io_binding()
        arrays = [_view(tensor) for tensor in tensors]
        for name, array in zip(inputs, arrays, strict=False):
            binding.bind_cpu_input(name, array)
        for name, array in zip(outputs, arrays[len(inputs) :], strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)

    def giving(*tensors: Any) -> Any:
        """Return results whose sizes are known only now."""
        from tvm import runtime

        feeds = dict(zip(inputs, map(_view, tensors), strict=True))
        results = [runtime.tensor(np.asarray(r, order="C")) for r in session.run(outputs, feeds)]
        return results[0] if len(results) == 1 else results

    return Compute(into, len(outputs)) if part.fixed else Compute(giving)


def _view(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the memory of a TVM tensor as an array; types that DLPack lacks are copied."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        copied: np.ndarray[Any, Any] = tensor.numpy()
        return copied
