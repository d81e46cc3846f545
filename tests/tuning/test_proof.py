"""The proof: what the tuned model must show before its kernels are used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import samples
from tvmscope.benchmark.compare import compare_all
from tvmscope.core.session import Session
from tvmscope.core.tuning import Candidate, Choice, Lowering, Status, Trial, TuningTask
from tvmscope.tuning.proof.prove import Proof, accept, settle
from tvmscope.tuning.proof.validate import Verdict

TASK = TuningTask(
    key="w",
    rule="r",
    kernel="k",
    calls=1,
    flops=None,
    bytes=None,
    lowerings=(Lowering(params={}, function="f"),),
)
OLD, NEW = Candidate(params={"a": 1}), Candidate(params={"a": 2})


def measured(untuned_s: float, tuned_s: float, **more: object) -> Session:
    rows = (samples.result("tvmscope", untuned_s), samples.result("tvmscope-tuned", tuned_s))
    rows = (rows[0], replace(rows[1], **more))  # type: ignore[arg-type]
    return replace(samples.session(*rows), comparisons=compare_all(rows))


@pytest.mark.parametrize(
    "session, accepted, word",
    [
        (measured(0.050, 0.040), True, "faster"),
        (measured(0.050, 0.050), True, "undecided"),
        (measured(0.050, 0.0505), False, "undecided"),
        (measured(0.050, 0.060), False, "slower"),
        (measured(0.050, 0.040, status="wrong", reason="error 0.1"), False, "wrong: error 0.1"),
        (measured(0.050, 0.040, status="failed", reason="crash"), False, "failed: crash"),
    ],
)
def test_only_a_right_and_not_slower_model_is_used(
    session: Session, accepted: bool, word: str
) -> None:
    found, why = accept(session)
    assert found == accepted
    assert word in why


def verdict(
    candidate: Candidate, interval: tuple[float, float] | None, status: Status = "ok"
) -> Verdict:
    trial = Trial(workload="w", candidate=candidate, target=samples.CPU, threads=2, status=status)
    speedup = None if interval is None else sum(interval) / 2
    return Verdict(task=TASK, trial=trial, speedup=speedup, interval=interval)


def chosen(*verdicts: Verdict, earlier: Candidate | None = None) -> Candidate | None:
    proof = Proof()
    if earlier is not None:
        proof.choices["w"] = Choice(candidate=earlier, source="earlier")
    settle(proof, "w", verdicts, "now")
    found = proof.choices.get("w")
    return found.candidate if found else None


def test_the_fastest_sure_candidate_is_chosen() -> None:
    assert chosen(verdict(OLD, (1.05, 1.1)), verdict(NEW, (1.2, 1.3))) == NEW
    assert chosen(verdict(NEW, (0.9, 1.4))) is None
    assert chosen(verdict(NEW, None, "wrong")) is None


def test_an_earlier_choice_stays_until_it_is_surely_not_faster() -> None:
    assert chosen(verdict(NEW, (0.9, 1.4)), earlier=OLD) == OLD
    assert chosen(verdict(OLD, (0.95, 1.2)), earlier=OLD) == OLD
    assert chosen(verdict(OLD, (0.9, 1.0)), earlier=OLD) is None
    assert chosen(verdict(OLD, (0.9, 1.0)), verdict(NEW, (1.1, 1.2)), earlier=OLD) == NEW
