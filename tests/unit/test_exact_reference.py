"""The reference in float64: which rows have it, and what happens where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import samples
from support.rows import key
from tvmscope.benchmark.running_row import Reference
from tvmscope.core.row import Task
from tvmscope.errors import RunError
from tvmscope.progress import Silent
from tvmscope.stages import exact_reference
from tvmscope.stages.exact_reference import ExactReference
from tvmscope.storage.files import write_npz

FRAMEWORK = np.array([1.0, 2.0, 3.0], dtype=np.float32)
TRUTH = FRAMEWORK.astype(np.float64) + 1e-6


class Noted(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(str(text))


def task(target: str, precision: str = "float32") -> Task:
    return samples.result(key("tvmscope", target, precision=precision), 1.0).task


class Job:
    """A model's folder; `truth` is what its run in float64 gives."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, truth: Any) -> None:
        self.runs, self.progress = 0, Noted()
        self.folder, self.reference = folder, folder / "reference.npz"
        write_npz(self.reference, {"y": FRAMEWORK})

        def run(_timeout_s: float, _function: Any, _folder: str, output: str) -> None:
            self.runs += 1
            if isinstance(truth, Exception):
                raise truth
            write_npz(Path(output), {"y": truth})

        monkeypatch.setattr(exact_reference, "run_within", run)

    def of(self, asked: Task) -> Path | None:
        return ExactReference(self.folder, self.reference, self.progress).of(asked)


def test_rows_on_a_gpu_and_in_half_precision_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, TRUTH)
    assert job.of(task("cpu:znver4")) is None
    assert job.runs == 0
    file = job.of(task("cuda:sm_90"))
    assert file is not None
    assert file.is_file()
    assert job.of(task("cpu:znver4", "float16")) == file
    assert job.runs == 1  # once per job, however often it measures
    assert job.progress.notes == []
    assert ExactReference(None, job.reference, Silent()).of(task("cuda:sm_90")) is None


@pytest.mark.parametrize(
    ("truth", "reason"),
    [
        (RunError("it cannot run in it: mat1 and mat2"), "mat1 and mat2"),
        (TRUTH + 0.1, "other outputs in float64"),
    ],
)
def test_a_model_without_it_is_compared_with_the_framework_and_that_is_said(
    truth: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, truth)
    assert job.of(task("cuda:sm_90")) is None
    assert job.of(task("cuda:sm_90")) is None
    assert job.runs == 1
    (note,) = job.progress.notes
    assert "the framework's float32" in note
    assert reason in note


def judged(folder: Path, outputs: np.ndarray, truth: np.ndarray | None) -> tuple[str, bool]:
    for name, array in (("out", outputs), ("reference", FRAMEWORK), ("truth", truth)):
        if array is not None:
            write_npz(folder / f"{name}.npz", {"y": array})
    exact = None if truth is None else folder / "truth.npz"
    against = Reference(folder / "reference.npz", "torch", 1e-4, exact=lambda: exact)
    found = against.judge(folder / "out.npz")
    return found.reference, found.passed


def test_a_rows_error_is_its_own_and_not_the_frameworks(tmp_path: Path) -> None:
    assert judged(tmp_path, FRAMEWORK, TRUTH) == ("float64", True)
    assert judged(tmp_path, FRAMEWORK, None) == ("torch", True)


def test_what_float64_does_not_prove_is_judged_as_before(tmp_path: Path) -> None:
    assert judged(tmp_path, FRAMEWORK, TRUTH + 1) == ("torch", True)
    assert judged(tmp_path, FRAMEWORK + 1, TRUTH) == ("torch", False)
