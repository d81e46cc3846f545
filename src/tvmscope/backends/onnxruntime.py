"""ONNX Runtime with full graph optimisation, sequential execution and all threads in one pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tvmscope import extras
from tvmscope.backends.api import Backend, LoadRequest, Profiler, read_inputs, require_onnx
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg


class _Runner:
    def __init__(self, request: LoadRequest) -> None:
        import onnxruntime as ort

        self.request = request
        provider = _PROVIDERS[request.device]
        self.session = ort.InferenceSession(
            str(require_onnx(Path(request.folder))), _options(request), providers=[provider]
        )
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

    def run(self) -> None:
        self.session.run(None, self.feed)

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        values = self.session.run(None, self.feed)
        return {name: np.asarray(v) for name, v in zip(self.names, values, strict=True)}

    def profiler(self) -> Profiler:
        from tvmscope.backends.profilers.onnxruntime import OrtProfiler

        provider = _PROVIDERS[self.request.device]
        return OrtProfiler(Path(self.request.folder), _options(self.request), provider, self.feed)


_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def _options(request: LoadRequest) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def load(request: LoadRequest) -> _Runner:
    """Make a session on the model's ONNX file."""
    return _Runner(request)


def unavailable(device: str) -> Text | None:
    """Needs the package, and its GPU build on CUDA."""
    if reason := extras.missing("onnxruntime"):
        return reason
    if device == "cuda":
        import onnxruntime as ort

        if "CUDAExecutionProvider" not in ort.get_available_providers():
            return msg("this onnxruntime is a CPU build: pip install onnxruntime-gpu")
    return None


BACKENDS = (
    Backend(
        name="onnxruntime",
        kinds=("cpu", "cuda"),
        formats=("torch", "onnx"),
        needs_onnx=True,
        profiles=True,
        load=here(load),
        unavailable=unavailable,
        env=lambda threads: {"OMP_NUM_THREADS": str(threads)},
    ),
)
