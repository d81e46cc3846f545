"""`tvmscope profile`, and the profiles inside `analyze`, as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from support import onnx_nets
from support.command import refuses, run
from tvmscope.report.formats.json_ import schema

QUICK = ("--threads", "2", "--offline")


@pytest.fixture(scope="module")
def onnx_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return onnx_nets.classifier(tmp_path_factory.mktemp("net") / "net.onnx")


@pytest.fixture(scope="module")
def artifact(onnx_net: Path) -> Path:
    folder = onnx_net.parent / "artifact"
    done = run("compile", str(onnx_net), "-o", str(folder), *QUICK)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_model_is_profiled_on_every_backend_asked_for(net: Path, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    backends = ("--backends", "tvmscope,onnxruntime,torch,torch-compile")
    done = run("profile", str(net), "--json", "--export-profile", str(file), *backends, *QUICK)
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)
    jsonschema.validate(session, schema())
    found = {p["backend"]: p for p in session["profiles"]}
    assert found.keys() == {"tvmscope", "onnxruntime", "torch"}
    assert "torch-compile: has no profiler" in done.stderr
    for profile in found.values():
        assert "conv/conv2d" in {op for k in profile["kernels"] for op in k["source_ops"]}
        assert profile["how"].split(",")[0] in done.stderr
    assert {ir["backend"] for ir in session["kernel_ir"]} == {"tvmscope"}
    assert json.loads(file.read_text()) == session["profiles"]


def test_an_artifact_alone_shows_kernels_and_what_is_outside_them(artifact: Path) -> None:
    done = run("profile", str(artifact), "--top", "1", "--threads", "2")
    assert done.returncode == 0, done.stderr
    for text in ("GFLOP/s", "of roof", "more kernel", "outside kernels", "without the profiler"):
        assert text in done.stderr
    assert done.stdout == ""


def test_what_cannot_be_profiled_is_refused(artifact: Path, onnx_net: Path, tmp_path: Path) -> None:
    refuses(run("profile", str(artifact), "--backends", "torch"), 2, "TVM alone")
    refuses(run("profile", str(onnx_net), "--backends", "nonsense"), 2, "nonsense")
    there = tmp_path / "there.json"
    there.write_text("mine")
    refuses(run("profile", str(artifact), "--export-profile", str(there)), 2, "--force")
    assert there.read_text() == "mine"


@pytest.mark.parametrize("flag", ["--profile", "--no-profile"])
def test_analyze_profiles_unless_told_not_to(flag: str, onnx_net: Path, tmp_path: Path) -> None:
    once = ("--iterations", "1", "--warmup", "0", "--backends", "tvmscope", "--json")
    done = run("analyze", str(onnx_net), "-o", str(tmp_path / "out"), flag, *once, *QUICK)
    assert done.returncode == 0, done.stderr
    session = json.loads(done.stdout)
    jsonschema.validate(session, schema())
    wanted = flag == "--profile"
    assert bool(session["profiles"]) == wanted
    assert bool(session["kernel_ir"]) == wanted
    assert bool(session["roofs"]) == wanted
    assert session["complete"]
    if wanted:  # a session's kernels have the code of its artifacts
        kernel = ("-k", session["kernel_ir"][0]["name"], "--code", "tir")
        shown = run("explain", str(tmp_path / "out"), *kernel)
        assert "@T.prim_func" in shown.stdout, shown.stderr
