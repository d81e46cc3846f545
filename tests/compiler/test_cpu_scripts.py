"""The scripts that measure on another CPU: models made here, small enough to carry, measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from support.onnx_nets import two_convolutions
from tvmscope.core.session import load

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import cpu_models

    return cpu_models


def test_repeated_weights_keep_the_spread_of_sums(models) -> None:
    weights = np.random.default_rng(0).standard_normal((48, 40, 3, 3), dtype=np.float32)
    made = models.repeated(weights, summed=1)
    assert made.shape == weights.shape
    np.testing.assert_array_equal(made[16:32, 16:32], made[:16, :16])
    image = np.tile(np.random.default_rng(1).standard_normal((16,), dtype=np.float32), 3)[:40]
    sums = np.einsum("oihw,i->o", made, image)
    plain = np.einsum("oihw,i->o", weights, np.random.default_rng(2).standard_normal(40))
    assert 0.4 < sums.std() / plain.std() < 2.5


def test_measures_beside_onnx_runtime_and_kernel_by_kernel(tmp_path: Path, models) -> None:
    folder = tmp_path / "models"
    (folder / "tiny").mkdir(parents=True)
    file = tmp_path / "tiny.onnx"
    two_convolutions(file)
    models.redraw(file)
    models.prepare(str(file), str(folder / "tiny"), models.LoadOptions(offline=True), None)
    models.make("tiny", folder, "cpu", (1,))
    models.archive(folder, tmp_path / "models.tar.xz")
    out = tmp_path / "out"
    words = [str(SCRIPTS / "cpu_check.py"), str(folder), "--output", str(out), "--duration", "0.1"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((out / "summary.json").read_text())
    (row,) = said["rows"]
    assert row["model"] == "tiny"
    assert row["ratio"] > 0
    kernels = said["kernels"]["tiny-1"]
    assert any(k["ours_us"] and k["peer_us"] and k["roof"] for k in kernels)
    with tarfile.open(out / "sessions.tar.xz") as packed:
        packed.extractall(tmp_path / "sessions", filter="data")
    session = load(tmp_path / "sessions" / "tiny-1")
    assert session.complete
    assert len(session.profiles) == 2
    roof = [str(SCRIPTS / "cpu_roof.py"), str(folder / "tiny"), "--turns=9", "--least-mflop=0"]
    done = subprocess.run([sys.executable, *roof], capture_output=True, text=True, check=False)
    if "never steady" in done.stderr:
        pytest.skip("this machine's core changes its speed all the time")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = re.findall(r"^\| (\S+) \|  \| ([\d.]+)% \|", done.stdout, re.MULTILINE)
    assert "conv2d" in dict(rules)
    assert all(float(share) < 120 for _, share in rules)
