"""ONNX Runtime with full graph optimisation, sequential execution and all threads in one pool.

On a GPU it uses the CUDA provider with exhaustive search of cuDNN's algorithms, tensors that stay
on the device, and a CUDA graph as a separate row; float16 is the converted model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tvmscope import extras
from tvmscope.backends import onnxruntime_libraries
from tvmscope.backends.api import Backend, LoadRequest, Profiler, read_inputs, require_onnx
from tvmscope.core.precision import FLOAT16, FLOAT32, TF32
from tvmscope.errors import BackendUnavailable, RunError, one_line
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_PLACE = "cuda"
"""The device on which the CUDA provider keeps its tensors."""


class _Runner:
    def __init__(self, request: LoadRequest) -> None:
        import onnxruntime as ort

        self.request = request
        provider = _PROVIDERS[request.device]
        self.session = self._session(ort, provider)
        self.names = [output.name for output in self.session.get_outputs()]
        wanted = {i.name for i in self.session.get_inputs()}
        self.feed = {k: v for k, v in read_inputs(Path(request.folder)).items() if k in wanted}
        self.settings = {
            "onnxruntime": ort.__version__,
            "provider": provider,
            "graph_optimization": "all",
            "execution": "sequential",
            "threads": str(request.threads),
        }

    def _session(self, ort: Any, provider: str) -> Any:
        model = str(require_onnx(Path(self.request.folder)))
        return ort.InferenceSession(model, _options(self.request), providers=[provider])

    def run(self) -> None:
        self.session.run(None, self.feed)

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        values = self.session.run(None, self.feed)
        return {name: np.asarray(v) for name, v in zip(self.names, values, strict=True)}

    def profiler(self) -> Profiler:
        from tvmscope.backends.profilers.onnxruntime import OrtProfiler

        provider = _PROVIDERS[self.request.device]
        return OrtProfiler(Path(self.request.folder), _options(self.request), provider, self.feed)


class _CudaRunner(_Runner):
    """Tensors stay on the device, as those of the other backends do."""

    def __init__(self, request: LoadRequest) -> None:
        super().__init__(request)
        import onnxruntime as ort

        self.given = {
            name: ort.OrtValue.ortvalue_from_numpy(_narrow(value, request), _PLACE, 0)
            for name, value in self.feed.items()
        }
        self.binding = self.session.io_binding()
        for name, value in self.given.items():
            self.binding.bind_ortvalue_input(name, value)
        if request.graph:  # a recorded graph always writes to the same addresses
            self._bind_fixed_outputs(ort)
        else:
            for name in self.names:
                self.binding.bind_output(name, _PLACE, 0)
        for _ in range(3):  # cuDNN's search, then the recording
            self.run()
        self.settings |= _cuda_options(request)

    def _session(self, ort: Any, provider: str) -> Any:
        model = require_onnx(Path(self.request.folder))
        given: Any = _in_half(model) if self.request.precision == FLOAT16 else str(model)
        options = _options(self.request)
        missing = onnxruntime_libraries.load(ort)
        session = ort.InferenceSession(
            given, options, providers=[(provider, _cuda_options(self.request))]
        )
        if provider not in session.get_providers():  # it falls back to the CPU without a message
            raise BackendUnavailable(_not_loaded(missing))
        return session

    def _bind_fixed_outputs(self, ort: Any) -> None:
        self.fixed = {}
        for output in self.session.get_outputs():
            if any(not isinstance(d, int) for d in output.shape):
                raise BackendUnavailable(
                    msg("a CUDA graph needs outputs of fixed shapes; {name} has none",
                        name=output.name)
                )  # fmt: skip
            dtype = np.dtype(_NUMPY[output.type])
            value = ort.OrtValue.ortvalue_from_shape_and_type(output.shape, dtype, _PLACE, 0)
            self.fixed[output.name] = value
            self.binding.bind_ortvalue_output(output.name, value)

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        self.run()
        values = self.binding.copy_outputs_to_cpu()
        return {name: np.asarray(v) for name, v in zip(self.names, values, strict=True)}

    def profiler(self) -> Profiler:
        """Use the device's own records, which PyTorch collects of any library in the process."""
        from tvmscope.backends.profilers import torch_replay

        if extras.missing("torch") is not None:
            raise RunError(
                msg(
                    "ONNX Runtime's profiler times launches on a GPU, not kernels; PyTorch's, "
                    "which would time them, is not installed"
                )
            )
        import torch

        return torch_replay.by_order(torch, self.run, Path(self.request.folder))


def _not_loaded(missing: list[str]) -> Text:
    if not missing:
        return msg("ONNX Runtime's CUDA provider cannot be loaded here")
    return msg(
        "ONNX Runtime's CUDA provider cannot be loaded here; not found: {missing} (pip's nvidia "
        "packages have them)",
        missing=", ".join(missing),
    )


_NUMPY = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(bool)": "bool",
}  # fmt: skip


def _options(request: LoadRequest) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def _cuda_options(request: LoadRequest) -> dict[str, str]:
    """Return the provider's options; by default it would compute float32 in TF32 everywhere."""
    return {
        "device_id": "0",
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "cudnn_conv_use_max_workspace": "1",
        "use_tf32": "1" if request.precision == TF32 else "0",
        "enable_cuda_graph": "1" if request.graph else "0",
    }


def _in_half(model: Path) -> bytes:
    """Convert the model to float16, inputs and outputs included, with ONNX Runtime's own tool."""
    import onnx

    try:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        made = convert_float_to_float16(onnx.load(model), keep_io_types=False)
        for number, node in enumerate(made.graph.node):  # the tool gives some casts one name
            node.name = f"{node.name}_{number}"
        return bytes(made.SerializeToString())
    except Exception as e:  # the tool raises any type of exception; the row shows the message
        raise BackendUnavailable(
            msg("ONNX Runtime cannot convert the model to float16: {reason}", reason=one_line(e))
        ) from e


def _narrow(value: np.ndarray[Any, Any], request: LoadRequest) -> np.ndarray[Any, Any]:
    half = request.precision == FLOAT16 and value.dtype == np.float32
    return value.astype(np.float16) if half else value


def load(request: LoadRequest) -> _Runner:
    """Make a session on the model's ONNX file."""
    return _CudaRunner(request) if request.device == "cuda" else _Runner(request)


def unavailable(device: str) -> Text | None:
    """Needs the package, and its GPU build on CUDA."""
    if reason := extras.missing("onnxruntime"):
        return reason
    if device == "cuda":
        import onnxruntime as ort

        provider = _PROVIDERS["cuda"]
        if provider in ort.get_available_providers():
            return None
        if not any(onnxruntime_libraries.names(ort)):
            return msg("this onnxruntime is a CPU build: pip install onnxruntime-gpu")
        missing = onnxruntime_libraries.load(ort)
        if provider not in ort.get_available_providers():
            return _not_loaded(missing)
    return None


BACKENDS = (
    Backend(
        name="onnxruntime",
        kinds=("cpu", "cuda"),
        formats=("torch", "onnx"),
        cuda_precisions=(FLOAT32, TF32, FLOAT16),
        graphs=True,
        needs_onnx=True,
        profiles=True,
        profiles_cuda=True,
        load=here(load),
        unavailable=unavailable,
        env=lambda threads: {"OMP_NUM_THREADS": str(threads)},
    ),
)
