"""`tvmscope explain`, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.command import refuses, run
from support.diagnosis_samples import SITUATIONS
from support.profiles import kernel, nest, profile
from support.profiles import session as profiled
from support.rows import key
from tvmscope.core.session import Session, save


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(SITUATIONS["serial-kernel"][0], tmp_path / "first")
    return tmp_path / "first"


def test_findings_go_to_stdout(saved: Path) -> None:
    done = run("explain", str(saved))
    assert done.returncode == 0
    assert "serial kernel leaves cores idle" in done.stdout
    assert "[serial-kernel]" in done.stdout


def test_json_holds_every_finding(saved: Path) -> None:
    (found,) = json.loads(run("explain", str(saved), "--json").stdout)
    assert found["model"] == "resnet50"
    assert found["findings"][0]["rule"] == "serial-kernel"
    assert found["findings"][0]["saving_s"] > 0


def test_a_kernel_is_shown_as_a_tree(saved: Path) -> None:
    done = run("explain", str(saved), "--kernel", "fused_dense_add")
    assert done.returncode == 0
    assert "vectorized i1 x 16" in done.stdout


def test_two_sessions_stand_side_by_side(saved: Path, tmp_path: Path) -> None:
    save(SITUATIONS["serial-kernel"][1], tmp_path / "second")
    done = run("explain", str(saved), str(tmp_path / "second"), "-k", "fused_dense_add")
    assert any("first" in line and "second" in line for line in done.stdout.splitlines())


def rows(untuned: str, tuned: str) -> Session:
    """A convolution in two rows, under names of their own, beside another kernel."""
    irs = [
        nest("fused_conv", ("serial", 64), key=key(untuned), rule="fallback"),
        nest("fused_pool", ("serial", 32), key=key(untuned)),
        nest("fused_pool", ("serial", 32), key=key(tuned)),
        nest("fused_conv_7", ("parallel", 8), key=key(tuned), rule="conv2d"),
    ]
    times = [
        profile(untuned, kernel("fused_conv", 2.0, "conv1", "relu1"), kernel("fused_pool", 1.0)),
        profile(tuned, kernel("fused_pool", 1.0), kernel("fused_conv_7", 1.0, "conv1")),
    ]
    return replace(profiled(*times), kernel_ir=tuple(irs))


def test_untuned_and_tuned_stand_side_by_side_by_their_operators(tmp_path: Path) -> None:
    save(rows("tvmscope", "tvmscope-tuned"), tmp_path / "both")
    done = run("explain", str(tmp_path / "both"), "-k", "fused_conv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any("tvmscope @" in x and "tvmscope-tuned @" in x for x in lines)
    assert any("serial i0 x 64" in x and "parallel i0 x 8" in x for x in lines)
    assert "fused_pool" not in done.stdout


def test_another_sessions_kernel_is_found_by_its_operators(tmp_path: Path) -> None:
    save(rows("tvmscope", "other"), tmp_path / "first")
    save(rows("another", "tvmscope-tuned"), tmp_path / "second")
    both = (str(tmp_path / "first"), "--against", str(tmp_path / "second"))
    done = run("explain", *both, "-k", "fused_conv", "--json")
    assert [k["name"] for k in json.loads(done.stdout)] == [
        "fused_conv", "fused_conv", "fused_conv_7",
    ]  # fmt: skip
    refuses(run("explain", *both), 2, "--kernel")


def test_a_kernel_as_json(saved: Path) -> None:
    (found,) = json.loads(run("explain", str(saved), "-k", "fused_dense_add", "--json").stdout)
    assert found["tree"][0]["extent"] == 64
    assert found["schedule"] == []


def test_an_unknown_kernel_is_answered_with_near_names(saved: Path) -> None:
    refuses(run("explain", str(saved), "-k", "dense_add"), 2, "similar names: fused_dense_add")
    refuses(run("explain", str(saved), "-k", "zzz"), 2, "some of its kernels")


def test_a_session_without_kernels_says_what_to_do(tmp_path: Path) -> None:
    save(SITUATIONS["warm-up-drift"][0], tmp_path / "bare")
    refuses(run("explain", str(tmp_path / "bare"), "-k", "x"), 2, "tvmscope analyze")


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    refuses(run("explain", str(tmp_path / "nothing")), 1, "no session")


def test_a_session_needs_neither_tvm_nor_torch(saved: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('tvm', 'torch', 'onnx', 'onnxruntime'): sys.modules[name] = None\n"
        "from tvmscope.cli.main import main\n"
        f"sys.exit(main(['explain', {str(saved)!r}]) or main(['compare', *[{str(saved)!r}] * 2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[serial-kernel]" in done.stdout


def test_a_kernels_code_is_printed_as_it_is(artifacts: Path) -> None:
    name = "detector"
    (first, *_) = json.loads((artifacts / name / "kernels.json").read_text())
    asked = ("explain", str(artifacts / name), "-k", first["name"], "--code")
    done = run(*asked, "tir")
    assert done.returncode == 0, done.stderr
    assert "@T.prim_func" in done.stdout
    (found,) = json.loads(run(*asked, "asm", "--json").stdout)
    assert found["kind"] == "asm"
    assert "\tret" in found["code"]
    refuses(run(*asked, "ptx"), 2, "it has tir, llvm, asm")


def test_code_needs_a_kernel_and_its_artifact(artifacts: Path, saved: Path) -> None:
    refuses(run("explain", str(artifacts / "net"), "--code", "tir"), 2, "--kernel")
    refuses(run("explain", str(saved), "-k", "fused_dense_add", "--code", "tir"), 2, "artifact")
