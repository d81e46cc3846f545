"""What a search knows of a task: which lowering MetaSchedule goes on with, and from what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import trials
from tvmscope.core.tuning import Candidate, Lowering, Params, TuningTask
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.search.state import State

DIRECT = Lowering(params={"kernel": "direct"}, function="direct.json")
PLAIN = Lowering(params={}, function="plain.json")


@pytest.fixture
def state() -> State:
    task = TuningTask(
        key=trials.CONV, rule="winograd", kernel="conv2d", calls=1, flops=1.0, bytes=1.0,
        lowerings=(PLAIN, DIRECT),
    )  # fmt: skip
    return State(PlannedTask(task=task, total_s=1.0, share=1.0, least_s=0.1))


def _add(state: State, seconds: float, params: Params, trace: str | None = None) -> None:
    candidate = Candidate(params=params, trace=trace)
    state.add(trials.trial(seconds=seconds, candidate=candidate), 0.0)


def test_metaschedule_begins_where_the_rules_best_candidate_begins(state: State) -> None:
    assert state.seed_lowering == PLAIN
    _add(state, 2e-3, {})
    _add(state, 1e-3, {"kernel": "direct", "unroll": 8})
    assert state.seed_lowering == DIRECT
    _add(state, 1e-4, {}, trace="[]")  # what it found itself does not move it elsewhere
    assert state.seed_lowering == DIRECT


def test_seeds_are_the_lowerings_candidates_of_the_rule_the_fastest_first(state: State) -> None:
    _add(state, 3e-3, {"kernel": "direct"})
    _add(state, 1e-3, {})
    _add(state, 2e-3, {"kernel": "direct", "unroll": 8})
    _add(state, 5e-4, {"kernel": "direct"}, trace="[]")
    found = [candidate.params for candidate, _ in state.first_layer(DIRECT)]
    assert found == [{"kernel": "direct", "unroll": 8}, {"kernel": "direct"}]


def test_traces_are_told_to_the_search_of_their_own_lowering(state: State) -> None:
    _add(state, 1e-3, {}, trace="[1]")
    _add(state, 1e-3, {"kernel": "direct"}, trace="[2]")
    failed = Candidate(params={"kernel": "direct"}, trace="[3]")
    state.add(replace(trials.trial(candidate=failed), status="failed", seconds=()), 0.0)
    assert set(state.traces(PLAIN)) == {"[1]"}
    assert state.traces(DIRECT).keys() == {"[2]", "[3]"}
    assert state.traces(DIRECT)["[3]"] is None
