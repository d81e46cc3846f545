"""benchmarks/gemm.py, as far as it needs no GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tvmscope.cuda.config import Config, to_json
from tvmscope.cuda.library.product import config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def gemm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import gemm

    return gemm


def test_a_dry_run_lists_every_kind(
    gemm: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gemm.py", "--dry-run", "--shapes", "512x4096x1024"])
    gemm.main()
    out = capsys.readouterr().out
    assert out.startswith("matmul 512x4096x1024 float16: ")
    for kind in ("  matmul, ", "  persistent, ", "  cublaslt, algorithm 7, weights n x k"):
        assert kind in out


def test_ratios_are_to_the_faster_of_pytorchs_layouts(gemm: ModuleType) -> None:
    us = {
        "torch a @ b": [12.0] * 8,
        "torch a @ b.T": [10.0] * 8,
        "tile": [12.5] * 8,
        "cublaslt, algorithm 0": [9.0, 10.0, 11.0, 10.0, 9.0, 10.0, 11.0, 10.0],
    }
    row = {
        "label": "matmul 1024x1024x1024 float16", "flops": 2 * 1024**3, "us": us,
        "generated": "tile", "library": "cublaslt, algorithm 0", "chosen": "cublaslt, algorithm 0",
    }  # fmt: skip
    text = gemm.table([row, row | {"library": None}])
    assert "10.0 us, 215 TFLOP/s | 0.80x [0.80, 0.80] tile | 1.00x [0.9" in text
    assert "| none |" in text


def test_the_choice_is_that_of_records(gemm: ModuleType) -> None:
    unit = gemm.unit_of("512x4096x1024")
    assert (unit.m, unit.n, unit.k) == (512, 4096, 1024)
    shared = {"unit": unit.to_json(), "gpu": "H200", "correct": True}
    tile = Config(template="matmul", m=64, n=64, k=64)

    def takes(call_us: float, correct: bool = True) -> bool:
        rows = [
            {**shared, "config": to_json(tile), "cold_us": [4.0], "hot_us": [4.0]},
            {**shared, "config": to_json(config(2)), "cold_us": [call_us], "hot_us": [call_us]},
        ]
        rows[1]["correct"] = correct
        return bool(gemm.takes_library(rows))

    assert takes(3.0)
    assert not takes(3.95)
    assert not takes(3.0, correct=False)
