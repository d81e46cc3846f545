"""OpenVINO's CPU plug-in with its latency hint, held to float32 so that all compute the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope import extras
from tvmscope.backends.api import Backend, LoadRequest, Profiler, read_inputs, require_onnx
from tvmscope.measure.remote import here
from tvmscope.messages import Text


class _Runner:
    def __init__(self, request: LoadRequest) -> None:
        import openvino as ov

        core = ov.Core()
        config = {
            # Also for throughput: batches run one at a time, and the streams of the throughput
            # hint would leave all cores but one idle.
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": request.threads,
            # On CPUs with bfloat16 units the plug-in would otherwise lower the precision by itself.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        folder = Path(request.folder)
        self.compile = partial(core.compile_model, device_name="CPU")
        self.folder, self.config = folder, config
        self.model = self.compile(str(require_onnx(folder)), config=config)
        self.request = filled_request(self.model, folder)
        self.settings = {
            "openvino": ov.__version__,
            **{key.lower(): str(value) for key, value in config.items()},
        }

    def run(self) -> None:
        self.request.infer()

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        self.request.infer()
        return {
            port.any_name: np.array(self.request.get_tensor(port).data)
            for port in self.model.outputs
        }

    def profiler(self) -> Profiler:
        from tvmscope.backends.profilers.openvino import OpenVinoProfiler
        from tvmscope.backends.profilers.openvino_host import calibrate

        counting = partial(self.compile, config={**self.config, "PERF_COUNT": True})
        model = counting(str(require_onnx(self.folder)))
        request = filled_request(model, self.folder)
        calibration = partial(calibrate, counting, model, request)
        return OpenVinoProfiler(model, request, self.folder, calibration)


def filled_request(model: Any, folder: Path) -> Any:
    """Return an infer request with the prepared inputs set."""
    import openvino as ov

    request = model.create_infer_request()
    names = {name for port in model.inputs for name in port.names}
    for name, value in read_inputs(folder).items():
        if name in names:
            request.set_tensor(name, ov.Tensor(np.asarray(value, order="C")))
    return request


def load(request: LoadRequest) -> _Runner:
    """Compile the model's ONNX file for the CPU."""
    return _Runner(request)


def unavailable(device: str) -> Text | None:
    """Needs the package."""
    return extras.missing("openvino")


BACKENDS = (
    Backend(
        name="openvino",
        kinds=("cpu",),
        formats=("torch", "onnx"),
        needs_onnx=True,
        profiles=True,
        load=here(load),
        unavailable=unavailable,
        env=lambda threads: {"OMP_NUM_THREADS": str(threads)},
    ),
)
