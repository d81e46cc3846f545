"""What other machines' trials suggest: the largest savings first, by times of one machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from support import trials as made
from tvmscope.core.tuning import Candidate, Params, Trial
from tvmscope.tuning.search.elsewhere import MOST, promising


def trial(params: Params, seconds: float, **changes: Any) -> Trial:
    return made.trial(seconds=seconds, candidate=Candidate(params=params), **changes)


def name(**params: int) -> str:
    return Candidate(params=params).id


def test_those_that_saved_most_come_first() -> None:
    trials = [trial({}, 1.0), trial({"a": 1}, 0.9), trial({"a": 2}, 0.5), trial({"a": 3}, 1.2)]
    assert promising(trials) == [name(a=2), name(a=1)]


def test_times_of_different_machines_are_not_compared() -> None:
    fast, slow = {"cpu": "fast"}, {"cpu": "slow"}
    trials = [trial({}, 1.0, **fast), trial({"a": 1}, 1.1, **fast), trial({}, 9.0, **slow)]
    assert promising([*trials, trial({"a": 2}, 3.0, **slow)]) == [name(a=2)]


def test_a_validated_trial_has_its_own_untuned_times() -> None:
    validated = replace(trial({"a": 1}, 0.8), stage="validated", baseline_s=(1.0, 1.0))
    assert promising([validated]) == [name(a=1)]


def test_failed_ones_traces_and_other_versions_of_a_rule_suggest_nothing() -> None:
    traced = replace(trial({}, 0.1), candidate=Candidate(trace="[]"))
    old = replace(trial({"a": 2}, 0.1), rule="conv2d", rule_version=-1)
    broken = made.failed(candidate=Candidate(params={"a": 1}))
    assert promising([trial({}, 1.0), broken, traced, old]) == []


def test_only_a_few_go_before_the_rules_own_order() -> None:
    many = [trial({"a": n}, 0.5 + n / 1000) for n in range(3 * MOST)]
    assert promising([trial({}, 1.0), *many]) == [name(a=n) for n in range(MOST)]
