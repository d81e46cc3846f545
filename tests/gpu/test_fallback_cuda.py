"""Operators without a kernel beside kernels on a real GPU: PyTorch on its stream, and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvmscope
from tvmscope.core.artifact import FALLBACK
from tvmscope.core.session import Session
from tvmscope.machine import cuda_device
from tvmscope.runtime import fallback_gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

NET = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.shift = nn.Parameter(torch.rand(7))

    def forward(self, x):
        inner = torch.special.i0(self.second(self.first(x).relu()) + self.shift)
        inner = torch.lgamma(inner + torch.arange(7))
        return self.third(self.third(inner)).relu()

def get_inputs():
    return [torch.randn(2, 8, 5, 7)]
"""


@pytest.fixture(scope="module")
def onnx_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float32) / 9
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="a", **pads),
        helper.make_node("QuickGelu", ["a"], ["b"], name="b", domain="com.microsoft"),
        helper.make_node("Conv", ["b", "w"], ["c"], name="c", **pads),
        helper.make_node("Conv", ["c", "w"], ["d"], name="d", **pads),
        helper.make_node("Relu", ["d"], ["y"], name="y"),
    ]
    shape = (2, 8, 5, 7)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    file = tmp_path_factory.mktemp("onnx") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), file)
    return file


def draws() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 8, 5, 7)).astype(np.float32) for _ in range(3)]


@pytest.mark.parametrize("graph", [False, True])
def test_the_gpu_and_copies_give_what_the_cpu_gives(
    graph: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    tvmscope.compile(str(source), tmp_path / "cpu", target="cpu")
    tvmscope.compile(str(source), tmp_path / "gpu", target="cuda", graph=graph)
    reference = tvmscope.load_artifact(tmp_path / "cpu")
    model = tvmscope.load_artifact(tmp_path / "gpu")
    place = "gpu" if torch.cuda.is_available() else "copied"
    assert set(model.ways.values()) == {place}
    given = draws()
    wanted = [next(iter(reference(x).values())) for x in given]
    for _ in range(3):  # the first run records graphs, and inputs take turns
        for x, right in zip(given, wanted, strict=True):
            (found,) = model(x).values()
            np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(fallback_gpu, "place_of", lambda _: None)  # as if PyTorch had no CUDA
    copied = tvmscope.load_artifact(tmp_path / "gpu")
    assert set(copied.ways.values()) == {"copied"}
    for _ in range(3):
        for x, right in zip(given, wanted, strict=True):
            (found,) = copied(x).values()
            np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("graph", [False, True])
def test_onnx_runtime_gets_copies(graph: bool, onnx_source: Path, tmp_path: Path) -> None:
    tvmscope.compile(str(onnx_source), tmp_path / "cpu", target="cpu")
    tvmscope.compile(str(onnx_source), tmp_path / "gpu", target="cuda", graph=graph)
    reference = tvmscope.load_artifact(tmp_path / "cpu")
    model = tvmscope.load_artifact(tmp_path / "gpu")
    assert set(model.ways.values()) == {"copied"}
    for _ in range(2):
        for x in draws():
            (found,), (right,) = model(x).values(), reference(x).values()
            np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3)


def test_pytorch_follows_the_stream_that_tvm_is_given(source: Path, tmp_path: Path) -> None:
    import torch
    import tvm_ffi

    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    tvmscope.compile(str(source), tmp_path / "gpu", target="cuda")
    model = tvmscope.load_artifact(tmp_path / "gpu")
    (x, *_) = draws()
    (wanted,) = model(x).values()
    placed = model.place({model.artifact.inputs[0].name: x})
    other = torch.cuda.Stream()
    for _ in range(5):
        with tvm_ffi.use_raw_stream(model.device, other.cuda_stream):
            result = model.run(placed)
        other.synchronize()
        (found,) = model.name_outputs(result).values()
        np.testing.assert_array_equal(found, wanted)


def test_many_runs_leave_no_memory(source: Path, tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    tvmscope.compile(str(source), tmp_path / "gpu", target="cuda", graph=True)
    model = tvmscope.load_artifact(tmp_path / "gpu")
    (x, *_) = draws()
    (wanted,) = model(x).values()
    for _ in range(20):
        model(x)
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        (found,) = model(x).values()
        np.testing.assert_array_equal(found, wanted)
    assert torch.cuda.memory_allocated() == before


@pytest.fixture(scope="module")
def sessions(
    source: Path, onnx_source: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Session]:
    folder = tmp_path_factory.mktemp("sessions")
    return {
        name: tvmscope.analyze(
            str(file),
            target="cuda",
            precision="float32,float16",
            backends=("tvmscope",),
            duration_s=0.3,
            output=folder / name,
        )
        for name, file in (("torch", source), ("onnx", onnx_source))
    }


@pytest.mark.parametrize("name", ["torch", "onnx"])
def test_rows_are_right_and_their_profiles_show_the_parts(
    name: str, sessions: dict[str, Session]
) -> None:
    session = sessions[name]
    assert {r.status for r in session.results} == {"ok"}
    assert {r.task.variant.graph for r in session.results} == {False, True}
    assert session.profiles
    for profile in session.profiles:
        parts = [k for k in profile.kernels if k.name.startswith(FALLBACK)]
        assert parts, profile.key.name
        assert all(k.source_ops and k.total_s > 0 for k in parts)
        if profile.device is not None:
            times = profile.device
            whole = profile.total_s - times.overlap_s + times.gap_s + times.edge_s
            assert whole == pytest.approx(profile.profiled_s, rel=0.03, abs=10e-6)
    found = [f for f in session.findings if f.rule == "runs-in-framework"]
    assert found
    assert "CUDA graphs" in str(found[0].evidence)
