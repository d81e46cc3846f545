"""A model's own rounding noise, estimated by its framework; planted errors are still found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvmscope.benchmark.verify import verify
from tvmscope.core.measurement import Accuracy
from tvmscope.core.options import LoadOptions
from tvmscope.errors import RunError
from tvmscope.models import sensitivity
from tvmscope.models.prepare import prepare
from tvmscope.models.sensitivity import estimate, write_truth
from tvmscope.storage.files import map_npz, write_npz

STEPS = 14
CHAOS = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range({STEPS}):
            x = 3.9 * x * (1 - x)
        return x
def get_inputs(): return [torch.rand(64) * 0.8 + 0.1]
"""
NORM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 8)
    def forward(self, x): return self.norm(x)
def get_inputs(): return [torch.randn(2, 8, 16, 16) + 300]
"""
INDEX = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return (x / 3).argmax(dim=1)
def get_inputs():
    x = torch.rand(4, 6) * 0.5
    x[0, 2] = x[0, 4] = 1.0
    x[0, 4] *= 1 - 2**-24
    x[1:, 3] = 1.0
    return [x]
"""
SORTED = """
import torch
class Model(torch.nn.Module):
    def forward(self, scores, boxes):
        return (boxes / 3)[(scores / 3).argsort(descending=True, stable=True)]
def get_inputs():
    scores = torch.linspace(1, 2, 50)
    scores[20] = scores[21]
    return [scores, torch.rand(50, 4)]
"""


def prepared(folder: Path, code: str) -> Path:
    (folder / "net.py").write_text(code)
    prepare(str(folder / "net.py"), str(folder / "model"), LoadOptions(need_onnx=False))
    estimate(str(folder / "model"), str(folder / "noise.npz"), 2.0**-23)
    return folder


def judged(folder: Path, **outputs: np.ndarray) -> Accuracy:
    write_npz(folder / "out.npz", outputs)
    reference = folder / "model" / "reference.npz"
    noise = folder / "noise.npz"
    return verify(folder / "out.npz", reference, 1e-4, "torch", noise=lambda: noise)


def logistic(x: np.ndarray, constants: list[float]) -> np.ndarray:
    """The same map with another rounding."""
    for k in constants:
        x = np.float32(k) * x - np.float32(k) * x * x
    return x.astype(np.float32)


def test_a_model_that_amplifies_rounding(tmp_path: Path) -> None:
    folder = prepared(tmp_path, CHAOS)
    x = map_npz(folder / "model" / "inputs.npz")["x"]
    other = judged(folder, output_0=logistic(x, [3.9] * STEPS))
    assert other.within_noise, other
    for place in (4, STEPS - 2):
        constants = [3.9] * STEPS
        constants[place] = 3.9 * 0.97
        assert not judged(folder, output_0=logistic(x, constants)).passed


def test_a_variance_that_cancels_is_wrong(tmp_path: Path) -> None:
    folder = prepared(tmp_path, NORM)
    groups = map_npz(folder / "model" / "inputs.npz")["x"].reshape(4, -1)

    def normal(variance: np.ndarray) -> np.ndarray:
        mean = groups.mean(axis=1, keepdims=True, dtype=np.float32)
        return ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(2, 8, 16, 16)

    mean = groups.mean(axis=1, keepdims=True, dtype=np.float32)
    right = ((groups - mean) ** 2).mean(axis=1, keepdims=True, dtype=np.float32)
    squares = np.mean(groups * groups, axis=1, keepdims=True, dtype=np.float32)
    assert judged(folder, output_0=normal(right)).passed
    assert not judged(folder, output_0=normal(np.abs(squares - mean * mean))).passed


def test_an_index_that_rounding_decides(tmp_path: Path) -> None:
    folder = prepared(tmp_path, INDEX)
    expected = map_npz(folder / "model" / "reference.npz")["output_0"]
    other, wrong = expected.copy(), expected.copy()
    other[0] = 6 - expected[0]  # 2 and 4 are all but equal
    wrong[1] = 0
    assert judged(folder, output_0=other).within_noise
    assert not judged(folder, output_0=wrong).passed


def test_rows_whose_order_rounding_decides(tmp_path: Path) -> None:
    folder = prepared(tmp_path, SORTED)
    expected = map_npz(folder / "model" / "reference.npz")["output_0"]
    other, wrong = expected.copy(), expected.copy()
    other[[28, 29]] = expected[[29, 28]]  # descending: 20 and 21 are equal
    wrong[[10, 11]] = expected[[11, 10]]
    assert judged(folder, output_0=other).within_noise
    assert not judged(folder, output_0=wrong).passed


def test_onnx_models(tmp_path: Path) -> None:
    """x * w - x: what is left are the last digits of the product."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]),
        helper.make_node("Sub", ["p", "x"], ["y"]),
    ]
    shape = [1, 64]
    graph = helper.make_graph(
        nodes,
        "cancel",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0001])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")
    prepare(str(tmp_path / "net.onnx"), str(tmp_path / "model"), LoadOptions())
    estimate(str(tmp_path / "model"), str(tmp_path / "noise.npz"), 2.0**-23)
    x = map_npz(tmp_path / "model" / "inputs.npz")["x"]
    assert judged(tmp_path, y=(x.astype(np.float64) * 1e-4).astype(np.float32)).passed
    assert not judged(tmp_path, y=(x.astype(np.float64) * 2e-4).astype(np.float32)).passed


@pytest.mark.parametrize("code", [CHAOS.replace("3.9 * x", "torch.full_like(x, 3.9).float() * x")])
def test_a_model_that_names_float32_needs_no_float64(tmp_path: Path, code: str) -> None:
    folder = prepared(tmp_path, code)
    assert float(map_npz(folder / "noise.npz")["max/output_0"]) > 1e-4


WIDE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 5)
    def forward(self, x): return {"score": self.fc(x), "best": self.fc(x).argmax(1)}
def get_inputs(): return [torch.randn(3, 64)]
"""
NAMED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x.to(torch.float32) * 2
def get_inputs(): return [torch.randn(3, 4)]
"""
REFUSES = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(4, 2)
def get_inputs(): return [torch.randn(3, 4)]
"""


def model_folder(folder: Path, code: str) -> Path:
    (folder / "net.py").write_text(code)
    prepare(str(folder / "net.py"), str(folder / "model"), LoadOptions(need_onnx=False))
    return folder / "model"


def test_the_outputs_in_float64_are_nearer_than_any_in_float32(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, WIDE)
    write_truth(str(folder), str(tmp_path / "truth.npz"))
    truth, reference = map_npz(tmp_path / "truth.npz"), map_npz(folder / "reference.npz")
    assert {n: str(a.dtype) for n, a in truth.items()} == {"score": "float64", "best": "int64"}
    assert np.array_equal(truth["best"], reference["best"])
    gap = np.abs(truth["score"] - reference["score"]).max()
    assert 0 < gap < 1e-5


@pytest.mark.parametrize(
    ("code", "reason"), [(NAMED, "stays float32"), (REFUSES, "it cannot run in it")]
)
def test_code_that_names_float32_has_no_outputs_in_float64(
    code: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=reason):
        write_truth(str(model_folder(tmp_path, code)), str(tmp_path / "truth.npz"))


def test_a_large_model_does_not_run_in_float64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivity, "MOST_WEIGHTS", 1000)
    with pytest.raises(RunError, match="weights"):
        write_truth(str(model_folder(tmp_path, WIDE)), str(tmp_path / "truth.npz"))
