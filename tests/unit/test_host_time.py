"""Host time is measured: time that neither kernels nor host account for is in neither of them."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.rows import key
from tvmscope.backends.profilers import openvino_host
from tvmscope.backends.profilers.onnxruntime import read_events
from tvmscope.backends.profilers.openvino import OpenVinoProfiler
from tvmscope.backends.profilers.openvino_host import LINKS, HostCost, calibrate, frame, in_turns
from tvmscope.backends.profilers.torch import TorchProfiler
from tvmscope.core.prepared import operators
from tvmscope.core.prepared.operators import Operators
from tvmscope.core.profile import Profile
from tvmscope.profiling.kernels import profile_runner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    onnx.save(
        helper.make_model(helper.make_graph([], "g", [info], [info])), tmp_path / "model.onnx"
    )
    operators.write(Operators(), tmp_path)
    return tmp_path


class LazyRequest:
    """Its calls take 2 ms, of which the counters know 0.5: somewhere 1.5 are lost."""

    def infer(self) -> None:
        time.sleep(2e-3)

    def get_profiling_info(self) -> list[SimpleNamespace]:
        node = {"node_type": "Convolution", "status": "Status.EXECUTED"}
        taken = timedelta(microseconds=250)
        return [SimpleNamespace(node_name=n, real_time=taken, **node) for n in ("a", "b")]


def _openvino_profile(folder: Path, cost: Any) -> Profile:
    model = SimpleNamespace(get_runtime_model=lambda: SimpleNamespace(get_ordered_ops=list))
    profiler = OpenVinoProfiler(model, LazyRequest(), folder, cost)
    runner = SimpleNamespace(run=lambda: time.sleep(2e-3), profiler=lambda: profiler)
    return profile_runner(runner, key("openvino"), 0.1)


def test_what_openvinos_counters_and_calibration_do_not_hold_is_not_called_host_time(
    folder: Path,
) -> None:
    found = _openvino_profile(folder, lambda: HostCost(call_s=2e-5, node_s=5e-6))
    assert found.total_s == pytest.approx(5e-4)
    assert found.host_s == pytest.approx(3e-5)  # a call and two nodes
    assert found.profiled_s - found.total_s - found.host_s > 1.4e-3


def test_openvinos_host_time_is_unknown_where_its_empty_models_cannot_be_made(folder: Path) -> None:
    def refuse() -> HostCost:
        raise RuntimeError("a parameter of type string is not supported")

    assert _openvino_profile(folder, refuse).host_s is None


def test_a_chain_costs_a_call_and_its_nodes_whoever_disturbs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    durations = {"model": 1.0, "frame": 2e-5, "chain": 2e-5 + LINKS * 3e-6}

    def call(kind: str) -> Any:
        count = iter(range(99))

        def take() -> None:
            disturbed = next(count) < {"frame": 1, "chain": 2}.get(kind, 0)
            now[0] += durations[kind] + (4e-3 if disturbed else 0.0)

        return take

    monkeypatch.setattr(openvino_host.time, "perf_counter", lambda: now[0])
    cost = in_turns(call("model"), call("frame"), call("chain"))
    assert cost.call_s == pytest.approx(2e-5)
    assert cost.of(10) == pytest.approx(2e-5 + 10 * 3e-6)
    assert now[0] < 10  # a slow model is not run for long


def test_frames_have_the_models_tensors_and_chains_the_links_besides() -> None:
    ov = pytest.importorskip("openvino")
    tensors = [ov.Tensor(np.ones((2, 3), np.int64)), ov.Tensor(np.ones((5,), np.float32))]
    results = [ov.Tensor(np.ones((), np.float32)), ov.Tensor(np.ones((4, 1), np.int64))]
    executed = []
    for links in (0, 7):
        model = ov.Core().compile_model(frame(tensors, results, links), "CPU")
        assert [tuple(p.shape) for p in model.inputs] == [(2, 3), (5,)]
        assert [tuple(p.shape) for p in model.outputs] == [(), (4, 1)]
        assert [p.element_type for p in model.outputs] == [ov.Type.f32, ov.Type.i64]
        ops = model.get_runtime_model().get_ordered_ops()
        executed.append([op.get_rt_info()["layerType"].astype(str) for op in ops])
    assert executed[1].count("SoftMax") + executed[1].count("Softmax") == 7
    assert not any("oftmax" in kind or "oftMax" in kind for kind in executed[0])


def test_openvino_is_calibrated_on_the_machine() -> None:
    ov = pytest.importorskip("openvino")
    core = ov.Core()
    tensors = [ov.Tensor(np.ones((1, 64), np.float32))]
    model = core.compile_model(frame(tensors, tensors, 3), "CPU")
    request = model.create_infer_request()
    request.set_input_tensor(0, tensors[0])
    request.infer()
    cost = calibrate(lambda made: core.compile_model(made, "CPU"), model, request)
    assert 0 < cost.call_s < 0.1
    assert 0 <= cost.node_s < 1e-3


def _event(name: str, start: int, length: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ts": start, "dur": length, "cat": "Node", "args": {}, **more}


EVENTS = [
    _event("model_run", 1000, 100, cat="Session"),
    _event("SequentialExecutor::Execute", 1005, 90, cat="Session"),
    _event("a_kernel_time", 1010, 40),
    _event("b_kernel_time", 1060, 30),
]


def test_onnx_runtimes_host_time_is_its_gaps_and_the_edges_of_the_call() -> None:
    (trace,) = read_events(EVENTS, {}, [(0.0, 500.0), (980.0, 1115.0)])
    assert trace.host_s == pytest.approx((10 + 10 + 10 + 20 + 15) * 1e-6)


def test_calls_on_another_clock_add_nothing_to_onnx_runtimes_host_time() -> None:
    (trace,) = read_events(EVENTS, {}, [(7e9, 7e9 + 5000)])
    assert trace.host_s == pytest.approx(30e-6)


def _torch_event(name: str, start: float, end: float, device: str = "CPU", **more: Any) -> Any:
    times = {"cpu_time_total": end - start, "device_time_total": 0.0, "cpu_parent": None, **more}
    return SimpleNamespace(
        name=name, time_range=SimpleNamespace(start=start, end=end),
        device_type=f"DeviceType.{device}", **times,
    )  # fmt: skip


@pytest.mark.parametrize(("device", "host_us"), [("cpu", 10 + 20 + 30), ("cuda", 25 + 15)])
def test_eager_host_time_is_where_nothing_computes(
    device: str, host_us: float, tmp_path: Path
) -> None:
    whole = _torch_event("tvmscope:", 0, 100)
    inside = {"cpu_parent": whole}
    events = [
        whole,
        _torch_event("aten::conv2d", 10, 30, device_time_total=40.0, **inside),
        _torch_event("aten::relu", 50, 70, device_time_total=20.0, **inside),
        _torch_event("tvmscope:", 25, 85, "CUDA"),  # how the profiler shows our range there
        _torch_event("conv_kernel", 25, 65, "CUDA"),
        _torch_event("relu_kernel", 65, 85, "CUDA"),
    ]
    operators.write(Operators(), tmp_path)
    runner = SimpleNamespace(torch=None, device=device)
    profiler = TorchProfiler(runner, tmp_path)  # type: ignore[arg-type]
    profiler._events = [events]
    (trace,) = profiler.traces()
    assert trace.host_s == pytest.approx(host_us * 1e-6)
    assert [s.seconds for s in trace.spans] == pytest.approx(
        [20e-6, 20e-6] if device == "cpu" else [40e-6, 20e-6]
    )
