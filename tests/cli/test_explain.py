"""`tvmscope explain`, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import refuses, run
from diagnosis_samples import SITUATIONS
from tvmscope.core.session import save


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


def test_a_kernel_as_json(saved: Path) -> None:
    (found,) = json.loads(run("explain", str(saved), "-k", "fused_dense_add", "--json").stdout)
    assert found["tree"][0]["extent"] == 64
    assert found["schedule"] == []


def test_an_unknown_kernel_is_answered_with_near_names(saved: Path) -> None:
    refuses(run("explain", str(saved), "-k", "dense_add"), 2, "near names: fused_dense_add")
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
