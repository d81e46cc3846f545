"""Whole models through the whole product: every built-in one, with real weights where there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tvmscope
from tvmscope.core.options import LoadOptions
from tvmscope.models.built_in import minilm
from tvmscope.models.catalog import built_ins
from tvmscope.models.loaders.load import load_torch
from tvmscope.models.resolve import classify

pytestmark = pytest.mark.slow

QUICK = {"target": "cpu", "offline": True}
CAT, KITTEN, STOCKS = (
    "A cat sat on the mat.",
    "A kitten sits on the rug.",
    "Stock prices rose today.",
)
"""Plain sentences, chosen so that PyTorch gives cosines of .655 and .091."""
RESNET_FILE = """
import torch
from torchvision.models import resnet50

class Model(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.net = resnet50(weights=None)
        self.net.load_state_dict(torch.load(weights))

    def forward(self, x):
        return self.net(x)

def get_init_inputs():
    return [WEIGHTS]

def get_inputs():
    return [torch.randn(1, 3, 224, 224)]
"""
ODD = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(2, 3))
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x, unused, flag, ids):
        y = self.layer(x)
        twice = [y, (y + 1, flag)]
        return {"same": x, "y": y, "twice": twice, "table": self.table, "n": ids.sum(), "b": x > 0}

def get_inputs():
    ids = torch.arange(5, dtype=torch.int32)
    return [torch.randn(2, 3), torch.randn(4), torch.tensor(True), ids]
"""


def example_inputs(name: str) -> list[list[np.ndarray]]:
    """Two sets of inputs that differ."""
    if name == "minilm":
        return [list(minilm.encode_inputs([text]).values()) for text in (CAT, STOCKS)]
    rng = np.random.default_rng(3)
    side = 416 if name.startswith("yolo") else 224
    return [[rng.standard_normal((1, 3, side, side), dtype=np.float32)] for _ in range(2)]


@pytest.mark.parametrize("name", built_ins())
def test_built_in_model_compiles_verifies_and_benches(name: str, tmp_path: Path) -> None:
    session = tvmscope.analyze(
        name, backends="tvmscope", output=tmp_path / "s", iterations=3, warmup=1, **QUICK
    )
    (result,) = session.results
    assert result.status == "ok", result.reason
    assert result.measurement is not None
    assert len(result.measurement.values_s) == 3
    assert result.accuracy is not None
    assert result.accuracy.error is not None
    assert result.accuracy.error < 1e-4
    assert session.model.notes == () or session.model.weights == "random"
    (artifact,) = (tmp_path / "s" / "artifacts").iterdir()
    run = tvmscope.load_artifact(artifact)
    (first,), (second,) = (run(*inputs).values() for inputs in example_inputs(name))
    assert np.isfinite(first).all()
    largest = np.abs(first).max()
    assert first.std() > 1e-2 * largest
    assert np.abs(first - second).max() > 1e-2 * largest


def test_minilm_sees_the_meaning_of_sentences(tmp_path: Path) -> None:
    tvmscope.compile("minilm", tmp_path / "a", **QUICK)
    run = tvmscope.load_artifact(tmp_path / "a")
    module = load_torch(classify("minilm"), LoadOptions()).module

    def embed(text: str) -> tuple[np.ndarray, np.ndarray]:
        arrays = minilm.encode_inputs([text])
        with torch.no_grad():
            expected = module(*(torch.from_numpy(a) for a in arrays.values()))[0].numpy()
        (found,) = run(**arrays).values()
        return found[0], expected

    (cat, kitten, stocks), (cat_, kitten_, stocks_) = zip(
        *(embed(text) for text in (CAT, KITTEN, STOCKS)), strict=True
    )
    assert cat @ kitten == pytest.approx(0.655, abs=1e-3)
    assert cat @ stocks == pytest.approx(0.091, abs=1e-3)
    assert cat @ kitten == pytest.approx(cat_ @ kitten_, abs=1e-4)
    assert cat @ stocks == pytest.approx(cat_ @ stocks_, abs=1e-4)


def test_resnet50_gives_the_same_outputs_by_all_four_routes(tmp_path: Path) -> None:
    module = load_torch(classify("resnet50"), LoadOptions(offline=True)).module
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(5))
    np.savez(tmp_path / "inputs.npz", x=x.numpy())
    weights = tmp_path / "weights.pt"
    torch.save(module.state_dict(), weights)
    (tmp_path / "net.py").write_text(RESNET_FILE.replace("WEIGHTS", repr(str(weights))))
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    torch.onnx.export(program, f=tmp_path / "net.onnx", dynamo=True, external_data=False)
    with torch.no_grad():
        expected = module(x).numpy()
    found = {}
    for route in ("resnet50", *(str(tmp_path / f"net.{end}") for end in ("onnx", "pt2", "py"))):
        folder = tmp_path / f"{Path(route).name}.artifact"
        built = tvmscope.compile(route, folder, inputs_file=tmp_path / "inputs.npz", **QUICK)
        assert [spec.name for spec in built.inputs] == ["x"]
        (found[route],) = tvmscope.load_artifact(folder)(x).values()
    for route, output in found.items():
        error = np.abs(output - expected).max() / np.abs(expected).max()
        assert error < 1e-4, route
    first, *others = found.values()
    for other in others:
        assert np.abs(other - first).max() / np.abs(first).max() < 1e-5


def test_every_backend_takes_odd_inputs_and_outputs(tmp_path: Path) -> None:
    """Unused, scalar, boolean and integer inputs; inputs, constants and twins as outputs."""
    (tmp_path / "odd.py").write_text(ODD)
    session = tvmscope.bench(
        tmp_path / "odd.py", output=tmp_path / "s", iterations=2, warmup=1, **QUICK
    )
    found = {result.task.variant.backend: result for result in session.results}
    for name in ("torch", "onnxruntime", "tvmscope", "tvm"):
        assert found.pop(name).status == "ok"
    for name, result in found.items():  # those that a machine may lack
        assert result.status in ("ok", "unavailable"), (name, result.reason)
    assert [spec.dtype for spec in session.model.inputs] == ["float32", "float32", "bool", "int32"]


@pytest.mark.parametrize(
    "name", ["fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large"]
)
def test_a_detector_of_torchvision_is_saved_read_and_verified(name: str, tmp_path: Path) -> None:
    session = tvmscope.bench(
        f"torchvision:{name}",
        backends="tvmscope",
        output=tmp_path / "s",
        iterations=2,
        warmup=1,
        **QUICK,
    )
    (result,) = session.results
    assert result.status == "ok", result.reason
    assert result.accuracy is not None
    assert result.accuracy.passed
    assert all(spec.shape[0] > 50 for spec in session.model.outputs)
