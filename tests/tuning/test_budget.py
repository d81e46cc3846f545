"""The budget of a tuning run: what validating does not need is searched, and all ends in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.trials import AVX2, trial
from tvmscope.core.options import MeasureOptions, TuneOptions
from tvmscope.core.tuning import Candidate, Lowering, Trial, TuningTask
from tvmscope.progress import Silent
from tvmscope.stages.options import Options
from tvmscope.tuning.job import tune
from tvmscope.tuning.plan import TRIAL_S, PlannedTask
from tvmscope.tuning.proof import prove as tuning_proof
from tvmscope.tuning.search.loop import Limits, Search
from tvmscope.tuning.trials.workshop import Setting

TASKS, BUDGET_S, PREPARED_S = 20, 600.0, 40.0
PROMISING = SimpleNamespace(fastest=lambda count: [None] * count)
"""A task with something to validate."""


@dataclass
class Clock:
    """Time that passes only when something is done."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Searching:
    """A search that always has something to try, unless it is `short`."""

    clock: Clock
    limits: Limits
    short: bool = False
    spans: list[float] = field(default_factory=list)
    states: dict[str, Any] = field(
        default_factory=lambda: dict.fromkeys(map(str, range(TASKS)), PROMISING)
    )
    workshop: None = None

    def run(self) -> None:
        span = 1.0 if self.short else max(0.0, self.limits.deadline - self.clock.now)
        self.spans.append(span)
        self.clock.now += span


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(PREPARED_S)
    monkeypatch.setattr(tune, "time", made)
    return made


def a_run(budget_s: float) -> Any:
    options = Options(tune=TuneOptions(budget_s=budget_s), measure=MeasureOptions(duration_s=5.0))
    job = SimpleNamespace(options=options, progress=Silent(), session=SimpleSession())
    return SimpleNamespace(
        job=job, began=0.0, build_s=10.0, load_s=4.0, spent_s=lambda: PREPARED_S, runs_here=True
    )


@dataclass(frozen=True)
class SimpleSession:
    warnings: tuple[str, ...] = ()


def spans(clock: Clock, monkeypatch: pytest.MonkeyPatch, each_s: float, **more: bool) -> Searching:
    """How a run with validations of `each_s` per task, of which fewer and fewer are left, goes."""
    run, proof = a_run(BUDGET_S), tuning_proof.Proof()
    left = [TASKS]

    def validate(*_: object) -> None:
        clock.now += left[0] * each_s
        proof.spent_s += left[0] * each_s
        proof.verdicts |= {str(n): [] for n in range(left[0])}
        left[0] //= 2

    monkeypatch.setattr(tuning_proof, "validate", validate)
    deadline = tune._deadline(run, TASKS, proof)
    search = Searching(clock, Limits(deadline=deadline), **more)
    tune._search_and_validate(run, search, proof)  # type: ignore[arg-type]
    assert clock.now + tuning_proof.model_s(run) <= BUDGET_S
    return search


def test_what_validating_leaves_is_searched(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    search = spans(clock, monkeypatch, each_s=1.0)
    assert len(search.spans) > 1
    unused_s = BUDGET_S - clock.now - tuning_proof.model_s(a_run(BUDGET_S))
    assert unused_s < 0.1 * BUDGET_S
    assert sum(search.spans) > search.spans[0] + 50


def test_a_long_validation_leaves_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(spans(clock, monkeypatch, each_s=5.0).spans) == 1


def test_a_search_that_has_nothing_left_to_try_is_not_repeated(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spans(clock, monkeypatch, each_s=1.0, short=True).spans == [1.0]


def test_a_budget_without_time_to_search_says_what_would_do(clock: Clock) -> None:
    run, proof = a_run(70.0), tuning_proof.Proof()
    assert not tune._has_time(run, TASKS, proof)
    assert "leaves no time to search" in proof.reason
    assert "30 s are searched without a proof" in proof.reason
    assert "give at least 2m" in run.job.session.warnings[0]
    assert tune._has_time(a_run(120.0), TASKS, proof)


def test_a_budget_that_preparing_used_up_still_searches_for_a_while(clock: Clock) -> None:
    run, proof = a_run(PREPARED_S - 10), tuning_proof.Proof()
    assert not tune._has_time(run, TASKS, proof)
    assert "8 s are searched without a proof" in proof.reason
    assert tune._end_without_proof(run) == clock.now + 7.5


def test_a_short_budget_keeps_less_for_validating_before_it_gives_up_the_search(
    clock: Clock,
) -> None:
    run, proof = a_run(80.0), tuning_proof.Proof()
    assert 80.0 - tuning_proof.reserve_s(run, TASKS, proof) < clock.now
    assert tune._has_time(run, TASKS, proof)
    deadline = tune._deadline(run, TASKS, proof)
    assert deadline == 80.0 - tuning_proof.least_reserve_s(run, proof)
    assert clock.now + 5 < deadline < clock.now + tune._LEAST_S


def test_without_time_for_a_proof_the_whole_rest_is_searched(clock: Clock) -> None:
    run = a_run(70.0)
    search = Searching(clock, Limits(deadline=tune._end_without_proof(run)))
    tune._only_search(run, search)  # type: ignore[arg-type]
    assert search.spans == [70.0 - PREPARED_S]
    assert clock.now == 70.0


@dataclass
class Bench:
    """A workshop whose every trial takes `each_s`."""

    clock: Clock
    each_s: float = TRIAL_S
    setting: Setting = field(default_factory=lambda: Setting(target=AVX2, threads=2))
    tried: list[tuple[str, bool]] = field(default_factory=list)

    def try_all(self, pairs: Any, deadline: float) -> Iterator[tuple[TuningTask, Trial]]:
        for task, candidate in pairs:
            if self.clock.now >= deadline:
                return
            self.clock.now += self.each_s
            self.tried.append((task.key, candidate == Candidate()))
            yield task, replace(trial(), workload=task.key, candidate=candidate)


def bench_for(clock: Clock, seconds: float, each_s: float = TRIAL_S) -> Bench:
    """What a search of 33 tasks, the last with the most to gain, does in so many seconds."""
    space = tuple(Candidate(params={"a": a} if a else {}) for a in range(9))
    tasks = [
        TuningTask(
            key=f"k{n}", rule="r", kernel=f"k{n}", calls=1, flops=1e6, bytes=None,
            lowerings=(Lowering(params={}, function="f.json"),), candidates=space,
        )
        for n in range(33)
    ]  # fmt: skip
    planned = [
        PlannedTask(task=t, total_s=0.01 * (n + 1), share=0.1, least_s=0.0)
        for n, t in enumerate(tasks)
    ]
    bench = Bench(clock, each_s)
    records = SimpleNamespace(trials=lambda workload: (), append=lambda trial, function: None)
    limits = Limits(deadline=clock.now + seconds)
    search = Search(planned, bench, records, limits, clock=clock.monotonic)  # type: ignore[arg-type]
    search.run()
    return bench


def test_a_short_search_of_many_tasks_tries_candidates_and_ends_in_time(clock: Clock) -> None:
    bench = bench_for(clock, 6.0)
    assert clock.now <= PREPARED_S + 6.0 + TRIAL_S
    assert clock.now >= PREPARED_S + 6.0, "time and tasks were left"
    untuned = [key for key, plain in bench.tried if plain]
    assert "k32" in untuned
    assert len(untuned) < 10
    assert sum(not plain for _key, plain in bench.tried) > 10
    first_seen = dict(reversed(bench.tried))
    assert all(first_seen.values()), "a candidate came before its untuned kernel"


def test_a_search_on_a_slow_machine_plans_with_what_a_trial_takes_there(clock: Clock) -> None:
    bench = bench_for(clock, 40.0, each_s=8 * TRIAL_S)
    assert clock.now <= PREPARED_S + 40.0 + 8 * TRIAL_S
    assert sum(not plain for _key, plain in bench.tried) >= 8
    assert sum(plain for _key, plain in bench.tried) <= 11


def test_a_long_search_measures_every_untuned_kernel_first(clock: Clock) -> None:
    bench = bench_for(clock, 600.0)
    assert all(plain for _key, plain in bench.tried[:33])
    assert len(bench.tried) == 33 * 9
