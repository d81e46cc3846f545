"""Trust: only what is right, and faster in turns with the untuned kernel, is chosen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tvmscope.core.options import MeasureOptions
from tvmscope.core.tuning import Candidate, TuningTask
from tvmscope.tuning.proof.validate import Validator, Verdict, best
from tvmscope.tuning.trials.workshop import Workshop

FAST = Candidate(params={"tile": 16, "unroll": 0})
SAME = Candidate(params={"again": 1})
WRONG = Candidate(params={"fault": "wrong"})


@pytest.fixture(scope="module")
def validator(workshop: Workshop) -> Iterator[Validator]:
    with Validator(workshop, MeasureOptions(duration_s=0.2, min_rounds=6)) as made:
        yield made


def test_a_faster_kernel_is_chosen_with_the_times_of_both(
    validator: Validator, task: TuningTask
) -> None:
    verdicts = validator.validate(task, [FAST])
    chosen = best(verdicts)
    assert chosen is not None
    assert chosen.trial.candidate == FAST
    assert chosen.speedup is not None
    assert chosen.speedup > 2  # the loops as written against vectors of 16
    assert chosen.trial.stage == "validated"
    assert len(chosen.trial.seconds) == len(chosen.trial.baseline_s) >= 6


def test_the_same_kernel_again_takes_the_same_time(validator: Validator, task: TuningTask) -> None:
    (verdict,) = validator.validate(task, [SAME])
    assert verdict.trial.status == "ok"
    assert verdict.speedup is not None
    assert 0.67 < verdict.speedup < 1.5  # wide: the machine may be busy


@pytest.mark.parametrize(
    "interval, faster, slower",
    [
        ((1.02, 1.10), True, False),
        ((1.005, 1.10), False, False),
        ((0.95, 1.20), False, False),
        ((0.90, 1.005), False, True),
        (None, False, False),
    ],
)
def test_the_whole_interval_must_lie_above_one_percent(
    workshop: Workshop,
    task: TuningTask,
    interval: tuple[float, float] | None,
    faster: bool,
    slower: bool,
) -> None:
    trial = workshop.trial(task, FAST, "ok", stage="validated")
    verdict = Verdict(task=task, trial=trial, speedup=1.05, interval=interval)
    assert (verdict.faster, verdict.slower) == (faster, slower)


def test_a_wrong_kernel_is_never_chosen_however_fast(
    validator: Validator, task: TuningTask
) -> None:
    verdicts = validator.validate(task, [WRONG, FAST])
    statuses = {v.trial.candidate.id: v.trial.status for v in verdicts}
    assert statuses == {WRONG.id: "wrong", FAST.id: "ok"}
    chosen = best(verdicts)
    assert chosen is not None
    assert chosen.trial.candidate == FAST


def test_a_candidate_that_cannot_be_built_again_is_not_chosen(
    validator: Validator, task: TuningTask
) -> None:
    verdicts = validator.validate(task, [Candidate(params={"fault": "build crash"})])
    assert best(verdicts) is None
    assert verdicts[0].slower


def test_a_process_that_ends_while_loading_costs_one_verdict_and_is_replaced(
    validator: Validator, task: TuningTask
) -> None:
    assert validator.validate(task, [FAST])
    os.kill(validator._workers[1].pid, signal.SIGKILL)
    assert validator.validate(task, [FAST]) == []
    assert [v.trial.status for v in validator.validate(task, [FAST])] == ["ok"]
