"""Flags that change what is measured, for what and where it goes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from support.command import refuses, run, save_onnx

QUICK = ("--backends", "onnxruntime", "--target", "cpu", "--iterations", "4", "--warmup", "1")


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    node = helper.make_node("Relu", ["x"], ["y"])
    return save_onnx(tmp_path / "relu.onnx", node, shape=("batch", 8))


def measured(*args: str, cwd: Path) -> dict:
    done = run("bench", "relu.onnx", *QUICK, "--json", "-q", "-o", "out", "--force", *args, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_throughput_is_items_per_second_of_the_batch(relu: Path) -> None:
    session = measured("--mode", "throughput", "--batch-size", "16", cwd=relu.parent)
    (row,) = session["results"]
    assert session["model"]["inputs"][0]["shape"] == [16, 8]
    assert row["items"] == 16
    assert row["items_per_s"] == pytest.approx(16 / row["median_s"])
    shown = run("report", "out", cwd=relu.parent).stdout
    assert "items/s" in shown


def test_latency_has_no_items(relu: Path) -> None:
    (row,) = measured(cwd=relu.parent)["results"]
    assert row["items"] is None
    assert "items_per_s" not in row


def test_cold_caches_take_single_runs(relu: Path) -> None:
    (row,) = measured("--cache", "cold", cwd=relu.parent)["results"]
    assert row["loops"] == 1
    assert row["samples"] == 4


def test_times_are_exported_in_the_order_they_were_taken(relu: Path) -> None:
    (row,) = measured("--export-times", "times.json", cwd=relu.parent)["results"]
    times = json.loads((relu.parent / "times.json").read_text())
    assert [t["latency_s"] for t in times] == row["values_s"]
    assert {t["backend"] for t in times} == {"onnxruntime"}


def test_given_inputs_are_used(relu: Path) -> None:
    np.savez(relu.parent / "in.npz", x=np.full((3, 8), 2, np.float32))
    session = measured("--inputs", "in.npz", cwd=relu.parent)
    assert session["model"]["inputs"][0]["shape"] == [3, 8]
    notes = " ".join(session["model"]["notes"])
    assert "constant" in notes  # what a constant input of this model must come to


def test_a_dry_run_prints_the_plan_and_does_nothing(relu: Path) -> None:
    done = run("analyze", "relu.onnx", "--target", "cpu", "--dry-run", "--json", cwd=relu.parent)
    assert done.returncode == 0
    (plan,) = json.loads(done.stdout)["plans"]
    assert plan[0] == "model     relu.onnx (onnx)"
    assert any(line.startswith("backend   tvmscope @ cpu:") for line in plan)
    assert any("torch" in line and "runs torch models only" in line for line in plan)
    assert [f.name for f in relu.parent.iterdir()] == ["relu.onnx"]


def test_a_dry_run_refuses_what_would_fail_at_once(tmp_path: Path) -> None:
    refuses(run("bench", "gone.onnx", "--dry-run", cwd=tmp_path), 2, "there is no file 'gone.onnx'")


def test_offline_downloads_nothing(tmp_path: Path) -> None:
    done = run("compile", "http://localhost:9/model.onnx", "--offline", "-q", cwd=tmp_path)
    refuses(done, 1, "not in the cache, and downloads are off")


def test_targets_that_cannot_run_here_are_cross_compiled(relu: Path) -> None:
    done = run(
        "analyze", "relu.onnx", "--target", "cpu,arm64:cortex-a72,cuda:sm_90", "--no-graph", "-q",
        "--backends", "tvmscope,onnxruntime", "--iterations", "2", "--json", "-o", "out",
        cwd=relu.parent, CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    assert done.returncode == 5, done.stderr  # a backend that was asked for could not run
    rows = {(r["backend"], r["target"]): r for r in json.loads(done.stdout)["results"]}
    host = next(target for _, target in rows if target.startswith("cpu:"))
    assert rows["tvmscope", host]["status"] == rows["onnxruntime", host]["status"] == "ok"
    for target in ("cpu:cortex-a72", "cuda:sm_90"):
        row = rows["tvmscope", target]
        assert row["status"] == "unavailable"
        assert "cross-compiled into" in row["reason"]
        folder = relu.parent / "out" / "artifacts" / f"tvmscope-{target.replace(':', '-')}"
        files = ["kernels.json", "kernels.tir.gz", "load_model.py", "meta.json", "model.so"]
        assert sorted(f.name for f in folder.iterdir()) == files
        assert rows["onnxruntime", target]["status"] == "unavailable"


def test_bare_cuda_without_a_gpu_is_cross_compiled(relu: Path) -> None:
    folder = relu.parent / "out"
    done = run("compile", str(relu), "--target", "cuda", "-o", str(folder), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0
    assert "cuda:sm_90" in done.stderr
    assert (folder / "model.so").is_file()


def test_fixes_need_profiles(relu: Path) -> None:
    refuses(
        run("analyze", "relu.onnx", "--fix", "--no-profile", cwd=relu.parent), 2, "--no-profile"
    )
