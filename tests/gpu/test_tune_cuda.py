"""Tuning on a real GPU: a small model from the plan to the proof; run with `make test-gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmscope
from tvmscope.compiler import targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import Session
from tvmscope.core.tuning import Candidate, Trial, TuningTask
from tvmscope.cuda import config as configs
from tvmscope.machine import cuda_device
from tvmscope.stages.builder import Builder
from tvmscope.stages.load import prepared
from tvmscope.stages.options import Options
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.trials.runners import LocalRunner
from tvmscope.tuning.trials.workshop import Setting, Workshop

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]

TRIALS = 24
NET = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(64, 128, 3, padding=1)
        self.head = torch.nn.Linear(128, 512)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(1, 64, 28, 28)]
"""


def tuned(
    source: Path, folder: Path, precision: str, *ops: str, without: tuple[str, ...] = ()
) -> Session:
    return tune(
        str(source),
        Options.of(
            target="cuda",
            precision=precision,
            disabled_passes=without,
            db=str(folder / "records.jsonl"),
            output=folder / "session",
            threads=4,
            trials=TRIALS,
            ops=ops,
            budget_s=600.0,  # the trials end it; on a machine that just started, 180 s were too few
            min_repeat_ms=2.0,
            duration_s=1.0,
        ),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture(scope="module")
def session(source: Path, folder: Path) -> Session:
    """Of TVM's own schedules."""
    return tuned(source, folder, "float32", "conv2d", "matmul", without=("place-units",))


def check(session: Session, folder: Path, *, most_failed: int) -> list[Trial]:
    """What holds for every run: trials that are valid, and nothing in use that is not faster."""
    device = cuda_device.find()
    assert device is not None
    trials = list(Database(folder / "records.jsonl").trials())
    searched = [t for t in trials if t.stage == "search"]
    assert len(searched) == len({(t.workload, t.candidate.id) for t in searched}) == TRIALS
    problems = [t.reason for t in searched if t.status != "ok"]
    assert len(problems) <= most_failed, problems
    assert {(t.cpu, t.target.arch) for t in trials} == {(device.name, device.arch)}
    assert session.complete
    (heavy,) = [t for t in session.tuning if "conv2d" in t.kernel]
    assert heavy.trials > TRIALS // 2
    assert heavy.best_s is not None
    assert heavy.untuned_s is not None
    used = [t for t in session.tuning if t.chosen is not None]
    assert all(t.interval and t.interval[0] >= 1.01 for t in used)
    if used:
        untuned, last = session.results
        assert (untuned.status, last.status) == ("ok", "ok")
        assert last.accuracy is not None
        assert last.accuracy.passed
        assert session.comparisons[0].verdict != "slower"
    return trials


def test_a_model_is_tuned_and_nothing_gets_slower(session: Session, folder: Path) -> None:
    trials = check(session, folder, most_failed=TRIALS // 10)
    assert any(t.candidate.trace for t in trials)
    validated = [t for t in trials if t.stage == "validated"]
    assert all(t.status == "ok" and t.baseline_s for t in validated)
    (heavy,) = [t for t in session.tuning if "conv2d" in t.kernel]
    assert heavy.chosen is not None, heavy.note  # DLight's convolution is far from its roof


def test_later_builds_use_the_records(session: Session, source: Path, folder: Path) -> None:
    if not any(t.chosen for t in session.tuning):
        pytest.skip("nothing was surely faster")
    found = tvmscope.analyze(
        str(source),
        target="cuda",
        backends=("tvmscope", "tvmscope-tuned"),
        graph=False,
        duration_s=0.5,
        profile=False,
        disabled_passes=("place-units",),
        db=str(folder / "records.jsonl"),
        output=folder / "again",
    )
    rows = {r.task.variant.backend: r.status for r in found.results}
    assert rows == {"tvmscope": "ok", "tvmscope-tuned": "ok"}


def test_a_kernel_is_timed_by_the_devices_clock_and_checked_on_the_cpu(
    source: Path, tmp_path: Path
) -> None:
    target = targets.resolve("cuda")
    options = Options.of(target="cuda")
    with prepared(str(source), options) as ready, Builder(ready, 4) as builder:
        tasks = builder.tasks(target, CompileOptions(), tmp_path / "functions")
    (conv,) = [task for task in tasks if "conv2d" in task.kernel]
    warm, cold = (_seconds(conv, tmp_path / str(c), cold=c) for c in (False, True))
    assert 0 < warm < 1e-2
    assert warm < 3 * cold  # an empty cache does not make it faster


def _seconds(task: TuningTask, folder: Path, *, cold: bool) -> float:
    setting = Setting(target=targets.resolve("cuda"), threads=4, plain_target=targets.host_target())
    runner = LocalRunner(threads=4, device="cuda", cold=cold)
    checker = LocalRunner(threads=1)
    builders = Builders(1, device="cuda")
    with Workshop(builders, runner, folder, setting, checker=checker, take_turns=False) as workshop:
        ((_, trial),) = workshop.try_all([(task, Candidate())])
    assert trial.status == "ok", trial.reason
    return min(trial.seconds)


def test_generated_kernels_are_tuned_too(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    session = tuned(source, tmp_path, "float16", "conv2d")
    trials = check(session, tmp_path, most_failed=0)
    tried = [t.candidate for t in trials if t.stage == "search" and t.candidate != Candidate()]
    assert len({configs.from_json(dict(c.params)) for c in tried}) == len(tried) > TRIALS // 2
