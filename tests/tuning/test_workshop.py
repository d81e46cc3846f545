"""Building and measuring: whatever a candidate does costs that candidate and no other."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support import tiny_tunables
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Trial, TuningTask
from tvmscope.errors import RunError
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.trials.kernels import Arguments
from tvmscope.tuning.trials.runners import Arrays, LocalRunner
from tvmscope.tuning.trials.workshop import Setting, Workshop, difference, tolerance

GOOD = Candidate(params={"tile": 8, "unroll": 0})


def fault(kind: str) -> Candidate:
    return Candidate(params={"fault": kind})


def tried(workshop: Workshop, task: TuningTask, *candidates: Candidate) -> dict[str, Trial]:
    trials = workshop.try_all([(task, candidate) for candidate in candidates])
    return {trial.candidate.id: trial for _, trial in trials}


@pytest.mark.parametrize(
    "kind, status, reason",
    [
        ("build crash", "failed", "building: killed by signal 6"),
        ("build hang", "failed", "building: did not answer for 4 s"),
        ("run crash", "failed", "running: killed by signal 6"),
        ("run hang", "failed", "running: did not answer for 4 s"),
        ("wrong", "wrong", "differs by"),
    ],
)
def test_a_bad_candidate_costs_only_itself(
    workshop: Workshop, task: TuningTask, kind: str, status: str, reason: str
) -> None:
    trials = tried(workshop, task, fault(kind), GOOD, Candidate())
    bad = trials[fault(kind).id]
    assert bad.status == status
    assert reason in (bad.reason or "")
    assert not bad.seconds
    assert [trials[c.id].status for c in (GOOD, Candidate())] == ["ok", "ok"]


def test_a_trial_says_where_and_how_it_was_measured(workshop: Workshop, task: TuningTask) -> None:
    trial = tried(workshop, task, GOOD)[GOOD.id]
    assert (trial.workload, trial.threads, trial.cpu, trial.tvm) == (task.key, 2, "a CPU", "1")
    assert len(trial.seconds) == 2
    assert all(0 < s < 1 for s in trial.seconds)
    assert trial.stage == "search"


def test_killed_builders_and_runner_are_replaced(workshop: Workshop, task: TuningTask) -> None:
    tried(workshop, task, GOOD)
    for pid in (*workshop.builders.pids, workshop.runner.pid):  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
    others = [Candidate(params={"tile": t, "unroll": 1}) for t in (2, 4, 8, 16, 32)]
    trials = tried(workshop, task, *others)
    assert len(trials) == len(others)
    assert sum(trial.status == "failed" for trial in trials.values()) <= 3  # one per process
    assert all(t.status == "ok" for t in tried(workshop, task, *others).values())


def test_with_spare_cores_building_and_measuring_overlap(
    task: TuningTask, setting: Setting, tmp_path: Path
) -> None:
    builders, runner = Builders(2, tunables=tiny_tunables.TUNABLES), LocalRunner(threads=1)
    with Workshop(builders, runner, tmp_path, setting, take_turns=False) as workshop:
        trials = tried(workshop, task, *task.candidates)
    assert sorted(trials) == sorted(candidate.id for candidate in task.candidates)
    assert {trial.status for trial in trials.values()} == {"ok"}


def test_what_the_deadline_cuts_off_was_not_tried(workshop: Workshop, task: TuningTask) -> None:
    assert list(workshop.try_all([(task, GOOD)], deadline=0.0)) == []


@pytest.mark.parametrize(
    "got, problem",
    [
        ([1.0, 2.0], None),
        ([1.0, 2.0001], None),
        ([1.0, 2.1], "differs by"),
        ([1.0, np.nan], "not finite"),
    ],
)
def test_results_are_compared_relative_to_the_largest(
    got: list[float], problem: str | None
) -> None:
    found = difference([np.array(got)], [np.array([1.0, 2.0])])
    assert found is None if problem is None else problem in (found or "")


def test_what_is_summed_in_halves_may_be_less_exact_whatever_it_is_handed_out_as() -> None:
    x, w, y = ((1, 8), "float16"), ((8, 8), "float16"), ((1, 8), "float32")
    assert tolerance((x, w, y)) == tolerance((x, w, x)) > 100 * tolerance((y, y))


def test_other_outputs_than_the_reference_has_are_wrong() -> None:
    assert difference([], [np.ones(2)])
    assert difference([np.ones(3)], [np.ones(2)])


class Asked(LocalRunner):
    """A runner that remembers which libraries it ran."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.libraries: set[str] = set()

    def outputs(self, library: Path, args: Arguments, seed: int) -> Arrays:
        self.libraries.add(library.name)
        return super().outputs(library, args, seed)


def test_plain_loops_run_where_they_can_if_the_device_cannot(
    task: TuningTask, setting: Setting, tmp_path: Path
) -> None:
    device, cpu = Asked(), Asked()
    generic = Target(kind="llvm", arch="x86-64")
    other = replace(setting, plain_target=generic)
    builders = Builders(1, tunables=tiny_tunables.TUNABLES)
    with Workshop(builders, device, tmp_path, other, checker=cpu, take_turns=False) as shop:
        found = tried(shop, task, GOOD, fault("wrong"))
        assert shop.check(task, GOOD, tmp_path / "matmul" / f"{GOOD.id}.so", seed=9) is None
    assert {trial.status for trial in found.values()} == {"ok", "wrong"}
    assert cpu.libraries == {"plain.so"}
    assert "plain.so" not in device.libraries
    assert cpu.pid is None  # both are ended


def test_an_error_on_a_gpu_ends_the_process_whose_context_holds_it(
    workshop: Workshop, task: TuningTask
) -> None:
    tried(workshop, task, GOOD)
    library = workshop.folder / "matmul" / f"{GOOD.id}.so"
    args = workshop.arguments(task, GOOD)
    with LocalRunner(threads=1, device="cuda") as runner:
        with pytest.raises(RunError):  # no GPU here, and code for the CPU where there is one
            runner.outputs(library, args, 0)
        assert runner.pid is None
