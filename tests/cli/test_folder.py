"""A folder of models through one command, one of them crashing: five rows, and nothing lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
from onnx import helper

from support.command import TORCH_NET, run, save_onnx
from tvmscope.report.formats.json_ import schema

MLP = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(depth)))

    def forward(self, x, y):
        return self.layers(x + y)

def get_init_inputs():
    return [12, 3]

def get_inputs():
    return [torch.randn(2, 12), torch.randn(2, 12)]
"""
CRASH = "import os\nos.abort()\n"
NAMES = ["a_conv", "b_mlp", "c_crash.py", "d_relu", "e_softmax"]


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "a_conv.py").write_text(TORCH_NET)
    (folder / "b_mlp.py").write_text(MLP)
    (folder / "c_crash.py").write_text(CRASH)
    save_onnx(folder / "d_relu.onnx", helper.make_node("Relu", ["x"], ["y"]))
    save_onnx(folder / "e_softmax.onnx", helper.make_node("Softmax", ["x"], ["y"], axis=-1))
    (folder / "notes.txt").write_text("not a model")
    return folder


def bench(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    args = ("--json", "--target", "cpu", "--iterations", "3", "--warmup", "1", "-o", "out")
    return run("bench", folder.name, *args, *more, cwd=folder.parent, timeout_s=600)


def check(done: subprocess.CompletedProcess[str], folder: Path) -> list[dict]:
    """Five sessions, five lines of a summary, and the exit code of a failure."""
    assert done.returncode == 1, done.stderr
    sessions = json.loads(done.stdout)
    validator = jsonschema.Draft202012Validator(schema())
    for session in sessions:
        validator.validate(session)
    assert [session["model"]["name"] for session in sessions] == NAMES
    lines = done.stderr.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["model", "status"])
    rows = lines[head + 1 : head + 6]
    assert [row.split()[0] for row in rows] == NAMES
    assert [row.split()[1] for row in rows] == ["ok", "ok", "failed", "ok", "ok"]
    assert "killed by signal 6" in rows[2]
    saved = sorted(f.parent.name for f in (folder.parent / "out").rglob("session.json"))
    assert len(saved) == 5
    return sessions


def test_a_crashing_model_is_a_row_among_five(problems: Path) -> None:
    sessions = check(bench(problems, "--backends", "onnxruntime"), problems)
    for session, name in zip(sessions, NAMES, strict=True):
        statuses = {r["backend"]: r["status"] for r in session["results"]}
        assert statuses == ({} if "crash" in name else {"onnxruntime": "ok"})
    assert "killed by signal 6" in sessions[2]["failure"]
    folders = sorted(str(f.parent) for f in (problems.parent / "out").rglob("session.json"))
    again = run("report", *folders)
    assert again.returncode == 0
    assert "c_crash.py" in again.stdout


@pytest.mark.slow
def test_all_backends_of_all_models_in_a_folder(problems: Path) -> None:
    sessions = check(bench(problems), problems)
    for session, name in zip(sessions, NAMES, strict=True):
        statuses = {r["backend"]: r["status"] for r in session["results"]}
        if session["model"]["format"] == "onnx":
            assert statuses.pop("torch") == statuses.pop("torch-compile") == "unavailable"
        if "crash" not in name:
            assert len(statuses) >= 4
            assert set(statuses.values()) == {"ok"}, statuses


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    done = run("bench", str(tmp_path), "-q")
    assert done.returncode == 2
    assert "holds no model files (.onnx, .pt2, .py, .cfg)" in done.stderr
