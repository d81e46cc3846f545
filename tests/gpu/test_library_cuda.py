"""cuBLASLt and cuDNN in artifacts on a GPU: numbers as of generated kernels, also by TVM alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvmscope
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.cuda.config import Config, to_json
from tvmscope.cuda.library import convolution, cudnn
from tvmscope.cuda.library.cublaslt import find
from tvmscope.cuda.library.product import config
from tvmscope.machine import cuda_device
from tvmscope.runtime.artifact import read_kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no GPU"),
    pytest.mark.skipif(find() is None, reason="no cuBLASLt"),
]

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(64, 128, 1)
        self.second = nn.Conv2d(128, 128, 1)
        self.window = nn.Conv2d(128, 128, 3, stride=2, padding=1)
        self.hidden = nn.Linear(128, 256)
        self.gelu = nn.GELU(approximate="tanh")
        self.last = nn.Linear(256, 128)
        self.head = nn.Linear(128, 40)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x) + x)
        x = torch.relu(self.window(x))
        x = x.flatten(2).transpose(1, 2)
        x = x + self.last(self.gelu(self.hidden(x)))
        return self.head(x.mean(1))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(2, 64, 12, 12)]
"""
RUN = """
import sys
for name in ("torch", "tvmscope", "triton"):
    sys.modules[name] = None
import numpy as np
sys.path.insert(0, sys.argv[1])
from load_model import Model
model = Model(sys.argv[1])
with np.load("inputs.npz") as given:
    inputs = dict(given)
first = model(**inputs)
for _ in range(20):
    again = model(**inputs)
    for name in first:
        assert np.array_equal(first[name], again[name]), name
np.savez("out.npz", **first)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("net") / "net.py"
    file.write_text(MODEL)
    return str(file)


@pytest.fixture(scope="module", params=["float16", "float32"])
def plain(request: Any, source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated kernels' artifact: what the library's is compared with."""
    folder = tmp_path_factory.mktemp(request.param) / "plain"
    tvmscope.compile(source, folder, target="cuda", precision=request.param, library=False)
    return folder


@pytest.mark.parametrize("graph", [True, False])
def test_calls_of_the_library(graph: bool, plain: Path, source: str, tmp_path: Path) -> None:
    calls, needs = compare(plain, source, config(0, "nk"), graph, tmp_path)
    assert {c["activation"] for c in calls} == {"none", "relu", "gelu_tanh"}
    assert any("residual" in c["arguments"] for c in calls)
    assert needs == {"cublasLt": "12"}


@pytest.mark.skipif(cudnn.find() is None, reason="no cuDNN")
@pytest.mark.parametrize("graph", [True, False])
def test_convolutions_of_cudnn(graph: bool, plain: Path, source: str, tmp_path: Path) -> None:
    calls, needs = compare(plain, source, convolution.config(0), graph, tmp_path)
    assert {tuple(c["w"][2:]) for c in calls} == {(1, 1), (3, 3)}
    assert any("residual" in c["arguments"] for c in calls)
    assert needs == {"cuDNN": "9"}


def compare(
    plain: Path, source: str, call: Config, graph: bool, tmp_path: Path
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Compile with a record that names a call for each unit, and compare with generated kernels, in
    tvmscope and with TVM alone; return the calls, and what loading needs."""
    precision, called = tvmscope.load_artifact(plain).artifact.precision.dtype, tmp_path / "called"
    how: dict[str, Any] = {"target": "cuda", "precision": precision, "graph": graph}
    keys = [k.workload for k in read_kernels(plain) if k.rule == "triton"]
    tvmscope.compile(source, called, library=True, choices=chosen(keys, call), **how)
    table = json.loads((called / "cubins.json").read_text())
    wanted, found = (outputs(folder, tmp_path) for folder in (plain, called))
    for name, value in wanted.items():
        a, b = (v.astype(np.float64) for v in (value, found[name]))
        assert np.abs(a - b).max() <= tolerance(precision) * np.abs(a).max()
    path = [p for p in os.environ.get("PYTHONPATH", "").split(":") if "src" not in Path(p).parts]
    alone = subprocess.run(
        [sys.executable, "-c", RUN, str(called)],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": ":".join(path)},
    )  # fmt: skip
    assert alone.returncode == 0, alone.stdout + alone.stderr
    with np.load(tmp_path / "out.npz") as bits:
        for name, value in found.items():
            assert bits[name].tobytes() == value.tobytes()
    calls = [entry["library"] for entry in table if entry["library"]]
    return calls, json.loads((called / "meta.json").read_text())["libraries"]


def tolerance(precision: str) -> float:
    return {"float16": 5e-3, "float32": 1e-4}[precision]


def chosen(keys: list[str], call: Config) -> dict[str, Choice]:
    """A record for every unit; those that the library cannot compute stay what they are."""
    candidate = Candidate(params=to_json(call))
    choice = Choice(candidate=candidate, source="here", cpu="a GPU", threads=1, date="today")
    return dict.fromkeys(keys, choice)


def outputs(folder: Path, scratch: Path) -> dict[str, Any]:
    model = tvmscope.load_artifact(folder)
    rng = np.random.default_rng(0)
    given = {
        spec.name: rng.standard_normal(spec.shape).astype(np.float32).astype(spec.dtype)
        for spec in model.artifact.inputs
    }
    np.savez(scratch / "inputs.npz", **given)
    return {name: np.asarray(value) for name, value in model(**given).items()}
