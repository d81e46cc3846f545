"""Runs parts of a model in a framework, through packed functions that compiled code calls.

Tensors are shared, not copied: the framework reads the memory of TVM's tensors. ONNX Runtime writes
into tensors that TVM has allocated; TVM reads the memory of PyTorch's results.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tvmscope.core.artifact import FRAMEWORKS, Fallback
from tvmscope.errors import RunError, one_line
from tvmscope.extras import install
from tvmscope.messages import msg

FILES = "region_*"
"""Files with the models of an artifact's parts, in its folder."""


def register(parts: Iterable[tuple[Fallback, bytes]], threads: int | None = None) -> None:
    """Let compiled code find the functions of its parts."""
    for part, model in parts:
        import tvm_ffi

        make = _in_torch if part.framework == "torch" else _in_onnx_runtime
        tvm_ffi.register_global_func(part.name, make(part, model, threads), override=True)


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


def _in_torch(part: Fallback, model: bytes, threads: int | None) -> Callable[..., Any]:
    """Return a function that runs an exported program and passes its results on without a copy."""
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ImportError as e:
        raise _missing(part, e) from e
    try:
        program = torch.export.load(io.BytesIO(model))
    except Exception as e:  # torch raises its own and plain errors alike
        raise _refused(part, e) from e
    if threads is not None:
        torch.set_num_threads(threads)
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    stored = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    held = [None if spec.kind is kind else stored[str(spec.target)] for spec in specs]
    places = [index for index, spec in enumerate(specs) if spec.kind is kind]
    compute = program.graph_module.forward
    from tvm import runtime

    def run(*tensors: Any) -> Any:
        arguments: list[Any] = list(held)
        with torch.inference_mode():
            for place, tensor in zip(places, tensors, strict=True):
                arguments[place] = from_dlpack(tensor)
            owned = {arguments[place].data_ptr() for place in places}
            results = [_own(result, owned) for result in compute(*arguments)]
        # without its deleter the memory would be freed with the result's last reference
        given = [runtime.from_dlpack(result) for result in results]
        return given[0] if len(given) == 1 else given

    return run


def _own(result: Any, owned: set[int]) -> Any:
    """Return a contiguous result in its own memory: TVM reuses that of the inputs."""
    if result.untyped_storage().data_ptr() in owned:
        return result.clone()
    return result.contiguous()


def _in_onnx_runtime(part: Fallback, model: bytes, threads: int | None) -> Callable[..., Any]:
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

    return into if part.fixed else giving


def _view(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the memory of a TVM tensor as an array; types that DLPack lacks are copied."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        copied: np.ndarray[Any, Any] = tensor.numpy()
        return copied
