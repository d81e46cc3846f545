"""Parts of a model that run in a framework: the packed functions that compiled code calls for them.

Tensors are shared, never copied: the framework reads the memory of TVM's tensors, and writes its
results into tensors that TVM has allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tvmscope.core.artifact import Fallback
from tvmscope.errors import RunError, one_line
from tvmscope.extras import install
from tvmscope.messages import msg

FILES = "region_*.onnx"
"""The models of an artifact's parts, in its folder."""


def register(parts: Iterable[tuple[Fallback, bytes]], threads: int | None = None) -> None:
    """Let compiled code find the functions of its parts."""
    for part, model in parts:
        import tvm_ffi

        tvm_ffi.register_global_func(part.name, _runner(part, model, threads), override=True)


def _runner(part: Fallback, model: bytes, threads: int | None) -> Callable[..., Any]:
    try:
        import onnxruntime as ort
    except ImportError as e:
        raise RunError(
            msg(
                "{operators} run in ONNX Runtime, which does not load ({reason}): {install}",
                operators=list(part.operators),
                reason=one_line(e),
                install=install("tvm"),
            )
        ) from e
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    # threads that wait busily would take the cores from the kernels that follow
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # onnxruntime has a dozen error classes without a common base
        raise RunError(
            msg(
                "ONNX Runtime cannot load {operators}: {reason}",
                operators=list(part.operators),
                reason=one_line(e),
            )
        ) from e
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]

    def into(*tensors: Any) -> None:
        """Inputs first, then where the results go."""
        binding = session.io_binding()
        arrays = [_view(tensor) for tensor in tensors]
        for name, array in zip(inputs, arrays, strict=False):
            binding.bind_cpu_input(name, array)
        for name, array in zip(outputs, arrays[len(inputs) :], strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)

    def giving(*tensors: Any) -> Any:
        """Results of sizes that are known only now."""
        from tvm import runtime

        feeds = dict(zip(inputs, map(_view, tensors), strict=True))
        results = [runtime.tensor(np.asarray(r, order="C")) for r in session.run(outputs, feeds)]
        return results[0] if len(results) == 1 else results

    return into if part.fixed else giving


def _view(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a TVM tensor as an array; types that DLPack does not carry are copied."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        copied: np.ndarray[Any, Any] = tensor.numpy()
        return copied
