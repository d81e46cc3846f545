"""The problem files of `benchmarks/problems`: each has the documented form and runs in PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2] / "benchmarks" / "problems"


def test_there_are_problems_of_each_kind() -> None:
    counts = {f.name: len(list(f.glob("*.py"))) for f in ROOT.iterdir() if f.is_dir()}
    assert counts.keys() == {"operators", "layers", "chains", "networks"}
    assert min(counts.values()) >= 20
    assert sum(counts.values()) >= 100
    assert f"{sum(counts.values())} small problems" in (ROOT / "README.md").read_text()


def test_each_problem_runs_and_gives_values_that_can_be_verified() -> None:
    for file in sorted(ROOT.rglob("*.py")):
        torch.manual_seed(0)
        code = runpy.run_path(str(file))
        assert code["__doc__"], file
        module = code["Model"](*code.get("get_init_inputs", list)()).eval()
        with torch.no_grad():
            outputs = module(*code["get_inputs"]())
        for value in outputs.values() if isinstance(outputs, dict) else [outputs]:
            assert value.isfinite().all(), file
            assert value.numel() == 1 or value.float().std() > 0, file
