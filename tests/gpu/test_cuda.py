"""The CUDA path on a real device; run with `make test-gpu`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvmscope
from tvmscope.analysis import roofline
from tvmscope.core.session import Session
from tvmscope.machine import cuda_device
from tvmscope.runtime.loaded_artifact import LoadedArtifact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 17, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(17)
        self.head = torch.nn.Linear(17, 5)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).clamp(0, 6).mean((2, 3)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(2, 3, 19, 23)]
"""


@pytest.fixture(scope="module")
def session(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return tvmscope.analyze(
        str(source),
        target="cuda",
        precision="float32,float16",
        backends=("tvmscope", "tvm", "torch"),
        duration_s=0.5,
        output=tmp_path_factory.mktemp("sessions") / "cuda",
    )


def test_every_row_is_right_in_both_precisions_with_and_without_graphs(session: Session) -> None:
    assert {r.status for r in session.results} == {"ok"}
    kinds = {(str(r.key.precision), r.task.variant.graph) for r in session.results}
    assert kinds == {(p, g) for p in ("float32", "float16") for g in (False, True)}


def test_device_time_is_measured_beside_the_wall_clock(session: Session) -> None:
    for result in session.results:
        assert result.device_measurement is not None
        assert result.device_measurement.clock == "cuda-events"
        assert min(result.device_measurement.values_s) > 0


def test_every_row_has_kernel_times_by_the_devices_clock(session: Session) -> None:
    found = {p.key.name: p for p in session.profiles}
    assert found.keys() == {r.task.variant.label for r in session.results}
    assert not [w for w in session.warnings if "not profiled" in w]
    for name, profile in found.items():
        assert all(k.total_s >= 0 for k in profile.kernels)
        assert profile.host_s is not None
        assert profile.device is not None, name
        times = profile.device
        assert times.launches >= 2
        union = profile.total_s - times.overlap_s
        if name.startswith(("tvm", "torch fp16 graph", "torch graph")):
            named = sum(k.total_s for k in profile.kernels if k.source_ops or k.kind == "layout")
            assert named >= 0.9 * profile.total_s, name
            whole = union + times.gap_s + times.edge_s
            assert whole == pytest.approx(profile.profiled_s, rel=0.03, abs=10e-6), name
        if name.startswith("tvmscope"):
            assert any("conv" in k.name and k.flops for k in profile.kernels)
    modes = {loop.mode for ir in session.kernel_ir for loop in ir.tree}
    assert any(mode.startswith("blockIdx") for mode in modes)


def test_a_graph_leaves_smaller_gaps(session: Session) -> None:
    found = {p.key.name: p.device for p in session.profiles}
    for name in ("torch", "torch fp16"):
        plain, graph = found[name], found[f"{name} graph"]
        assert plain is not None
        assert graph is not None
        assert graph.gap_s < plain.gap_s


def test_generated_kernels_say_what_their_code_takes(session: Session) -> None:
    codes = [ir.code for ir in session.kernel_ir if ir.code is not None]
    assert codes
    assert all(c.registers > 0 and c.threads >= 32 and c.blocks > 0 for c in codes)
    assert any(c.matrix for c in codes)


def test_every_profiled_kernel_says_what_it_takes(session: Session) -> None:
    for profile in session.profiles:
        computing = [k for k in profile.kernels if k.kind == "compute"]
        assert all(k.resources for k in computing), profile.key.name
        for taken in (k.resources for k in computing if k.resources):
            assert taken.threads >= 1
            assert taken.blocks >= 1
            assert taken.registers is not None
            assert taken.occupancy is None or 0 <= taken.occupancy <= 1


def test_events_time_the_same_kernels_without_pytorchs_records(
    source: Path, tmp_path: Path
) -> None:
    """The profiler of machines without PyTorch, beside the device's own records."""
    import torch

    from tvmscope.backends.profilers.tvm import VmProfiler
    from tvmscope.backends.profilers.tvm_device import DeviceProfiler
    from tvmscope.runtime.loaded_artifact import load_callable

    tvmscope.compile(str(source), tmp_path / "artifact", target="cuda")
    loaded = load_callable(tmp_path / "artifact")
    x = np.random.default_rng(0).standard_normal((2, 3, 19, 23)).astype("float32")
    inputs = loaded.place({loaded.artifact.inputs[0].name: x})

    def run() -> None:
        loaded.run(inputs)
        loaded.device.sync()

    for _ in range(20):
        run()
    by_events, by_records = VmProfiler(loaded, inputs), DeviceProfiler(torch, run, loaded)
    for profiler in (by_records, by_events):
        for _ in range(3):
            assert profiler.run() > 0
    events, records = by_events.traces()[-1], by_records.traces()[-1]
    assert {s.kernel for s in events.spans} == {
        s.kernel for s in records.spans if s.kernel in loaded_kernels(loaded)
    }
    assert all(s.seconds > 0 for s in events.spans)
    assert events.device is not None
    times, spent = events.device, sum(s.seconds for s in events.spans)
    assert spent >= sum(s.seconds for s in records.spans) * 0.9  # a launch may be part of it
    whole = spent - times.overlap_s + times.gap_s + times.edge_s
    assert whole == pytest.approx(spent + (events.host_s or 0.0), rel=1e-3)


def test_events_inside_a_graph_time_its_kernels_and_leave_its_results(
    source: Path, tmp_path: Path
) -> None:
    """The profiler of a CUDA graph on machines without PyTorch."""
    from tvmscope.backends.profilers.tvm import VmProfiler
    from tvmscope.backends.profilers.tvm_graph import GraphRecorder
    from tvmscope.runtime.loaded_artifact import load_callable

    tvmscope.compile(str(source), tmp_path / "artifact", target="cuda", graph=True)
    loaded = load_callable(tmp_path / "artifact")
    (spec,) = loaded.artifact.inputs
    rng = np.random.default_rng(0)
    given, other = (
        loaded.place({spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)})
        for _ in range(2)
    )
    wanted = loaded.name_outputs(loaded.run(other))  # its kernels are launched one by one

    profiler = VmProfiler(loaded, given)
    seconds = [profiler.run() for _ in range(5)]
    launched = {call.kernel for call in loaded.artifact.kernels} - {"reshape"}  # a view
    for trace, whole_s in zip(profiler.traces(), seconds, strict=True):
        assert {s.kernel for s in trace.spans} == launched
        assert all(s.seconds > 0 for s in trace.spans)
        assert sum(s.seconds for s in trace.spans) <= 1.03 * whole_s
        assert trace.device is not None
        assert trace.device.launches == len(trace.spans)

    recorder = profiler._recorder
    assert isinstance(recorder, GraphRecorder)
    assert recorder._nodes
    for machine in (loaded, recorder.loaded):  # both launch their graphs now
        found = machine.name_outputs(machine.run(other))
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def loaded_kernels(loaded: LoadedArtifact) -> set[str]:
    return {call.kernel for call in loaded.artifact.kernels}


def test_artifact_takes_numpy_and_tensors_that_live_on_the_device(
    source: Path, tmp_path: Path
) -> None:
    import torch

    tvmscope.compile(str(source), tmp_path / "artifact", target="cuda")
    model = tvmscope.load_artifact(tmp_path / "artifact")
    x = np.random.default_rng(0).standard_normal((2, 3, 19, 23)).astype("float32")
    from_numpy = model(x)
    from_device = model(torch.from_numpy(x).cuda())
    for name, value in from_numpy.items():
        np.testing.assert_allclose(from_device[name], value, rtol=1e-5, atol=1e-6)


def test_target_is_read_from_the_device() -> None:
    device = cuda_device.find()
    assert device is not None
    assert device.arch.startswith("sm_")
    assert device.attrs["thread_warp_size"] == 32
    assert device.attrs["max_shared_memory_per_block"] >= 48 << 10


def test_the_gpu_has_roofs_and_no_kernel_is_above_them(session: Session) -> None:
    found = {(r.dtype, r.level): r for r in session.roofs if r.device == "cuda"}
    assert {("float32", None), ("float16", None), ("float32", "L2"), ("float32", "DRAM")} <= set(
        found
    )
    assert found["float16", None].flops_per_s > found["float32", None].flops_per_s
    placed = [p for p in roofline.points(session) if p.key.is_ours]
    assert placed
    assert not [p for p in placed if p.above]


@pytest.mark.parametrize("how", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_scatters_with_duplicates_are_right_whatever_the_order_of_threads(
    how: str, precision: str, tmp_path: Path
) -> None:
    from onnx import TensorProto, helper, save

    rng = np.random.default_rng(0)
    indices = rng.integers(-40, 40, (500, 1))  # each place a dozen times
    inputs = {
        "x": rng.integers(1, 3, (40, 33)).astype(np.float32),
        "indices": indices,
        "u": rng.choice(np.array([0.5, 1, 2], np.float32), (500, 33)),
    }
    kinds = {"x": TensorProto.FLOAT, "indices": TensorProto.INT64, "u": TensorProto.FLOAT}
    given = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in inputs.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (40, 33))
    node = helper.make_node("ScatterND", list(inputs), ["y"], reduction=how)
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(helper.make_graph([node], "g", given, [result]), opset_imports=opset)
    model.ir_version = 10
    save(model, tmp_path / "scatter.onnx")
    tvmscope.compile(
        str(tmp_path / "scatter.onnx"), tmp_path / "artifact", target="cuda", precision=precision
    )
    (found,) = tvmscope.load_artifact(tmp_path / "artifact")(*inputs.values()).values()
    combine = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    wanted = inputs["x"].copy()
    for place, update in zip(indices[:, 0], inputs["u"], strict=True):
        wanted[place] = combine[how](wanted[place], update) if how in combine else update
    np.testing.assert_allclose(np.asarray(found, np.float32), wanted, rtol=2e-3)
