"""The search: what it tries, what it records, when it stops, and that it never repeats itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import tiny_tunables
from support.trials import trial
from tvmscope.core.tuning import Candidate, TuningTask
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.search.loop import Limits, Search
from tvmscope.tuning.search.metaschedule import Proposer
from tvmscope.tuning.trials.workshop import Workshop


def planned(task: TuningTask, total_s: float = 1.0, least_s: float = 0.1) -> PlannedTask:
    return PlannedTask(task=task, total_s=total_s, share=0.5, least_s=least_s)


def searched(
    workshop: Workshop, file: Path, tasks: list[PlannedTask], limits: Limits, **more: Any
) -> Search:
    search = Search(tasks, workshop, Database(file), limits, batch=2, **more)
    search.run()
    return search


def ids(file: Path) -> list[str]:
    return [trial.candidate.id for trial in Database(file).trials()]


def test_the_fastest_candidate_is_found_and_every_trial_recorded(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    search = searched(workshop, file, [planned(task)], Limits())
    assert sorted(ids(file)) == sorted(c.id for c in task.candidates)
    state = search.states[task.key]
    assert state.untuned_s is not None
    assert state.best_s is not None
    assert state.best_s < state.untuned_s
    assert search.model_s < 1.0
    assert state.over == "every candidate was tried"
    times = [point.best_s for point in state.points]
    assert times == sorted(times, reverse=True)


def test_two_short_runs_try_what_one_long_run_tries(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    searched(workshop, file, [planned(task)], Limits(trials=4))
    assert len(ids(file)) == 4
    again = searched(workshop, file, [planned(task)], Limits(trials=4))
    assert again.states[task.key].earlier == 4
    assert len(ids(file)) == 8
    assert max(Counter(ids(file)).values()) == 1


def test_what_was_fast_on_another_machine_is_tried_first(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    last, slow = task.candidates[-1], task.candidates[1]
    given = ((Candidate(), 1.0), (slow, 2.0), (last, 0.5))
    other, file = Database(tmp_path / "other.jsonl"), tmp_path / "records.jsonl"
    for candidate, seconds in given:
        there = {"workload": task.key, "candidate": candidate, "cpu": "another"}
        other.append(trial(seconds=seconds, **there))
    search = searched(workshop, file, [planned(task)], Limits(trials=2), elsewhere=[other])
    assert search.states[task.key].first == [last.id]
    assert ids(file) == [Candidate().id, last.id]  # measured here, not taken over


def test_earlier_trials_count_towards_the_limit_of_a_task(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    searched(workshop, file, [planned(task)], Limits(per_task=3))
    assert len(ids(file)) == 3
    searched(workshop, file, [planned(task)], Limits(per_task=5))
    assert len(ids(file)) == 5


def test_the_task_with_more_to_gain_gets_more_trials(
    workshop: Workshop, function: Path, tmp_path: Path
) -> None:
    heavy = tiny_tunables.make_task(function, key="heavy")
    light = tiny_tunables.make_task(function, key="light")
    tasks = [planned(light, total_s=0.01, least_s=0.0), planned(heavy, total_s=10.0, least_s=0.0)]
    file = tmp_path / "records.jsonl"
    search = searched(workshop, file, tasks, Limits(trials=8))
    assert len(search.states["heavy"].tried) > len(search.states["light"].tried)


def test_no_search_where_too_little_could_be_gained(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    near_roof = planned(task, total_s=1.0, least_s=0.97)
    search = searched(workshop, file, [near_roof], Limits(until=0.05))
    assert search.new == 1  # the untuned kernel, which tells how far it is


@pytest.mark.slow  # by the clock
def test_a_task_without_progress_is_left(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    same = tuple(Candidate(params={"tile": 8, "unroll": 0, "again": n}) for n in range(9))
    task = tiny_tunables.make_task(Path(task.lowerings[0].function), (Candidate(), *same))
    search = searched(workshop, tmp_path / "r.jsonl", [planned(task)], Limits(early_stopping=3))
    assert search.new < len(task.candidates)
    assert "no progress" in (search.states[task.key].over or "")


@pytest.mark.slow  # by the clock
def test_the_deadline_is_kept(workshop: Workshop, task: TuningTask, tmp_path: Path) -> None:
    hangs = tuple(Candidate(params={"fault": "build hang", "again": n}) for n in range(20))
    task = tiny_tunables.make_task(Path(task.lowerings[0].function), (Candidate(), *hangs))
    start = time.monotonic()
    searched(workshop, tmp_path / "r.jsonl", [planned(task)], Limits(deadline=start + 3.0))
    assert time.monotonic() - start < 3.0 + 2.0


def test_wrong_and_failed_candidates_are_recorded_but_never_best(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    bad = tuple(Candidate(params={"fault": kind}) for kind in ("wrong", "run crash"))
    task = tiny_tunables.make_task(Path(task.lowerings[0].function), (Candidate(), *bad))
    file = tmp_path / "records.jsonl"
    search = searched(workshop, file, [planned(task)], Limits())
    state = search.states[task.key]
    assert Counter(t.status for t in Database(file).trials()) == {"ok": 1, "wrong": 1, "failed": 1}
    assert (state.wrong, state.failed) == (1, 1)
    assert state.fastest(3) == []


@pytest.mark.slow  # long
def test_metaschedule_goes_on_where_no_rule_has_a_space(
    workshop: Workshop, function: Path, tmp_path: Path
) -> None:
    task = tiny_tunables.make_task(function, (Candidate(),), key="no rule")
    file = tmp_path / "records.jsonl"
    target = workshop.setting.target
    with Proposer(target, seed=0, count=2, threads=2) as proposer:
        search = searched(workshop, file, [planned(task)], Limits(trials=5), proposer=proposer)
        assert proposer.failures == {}
    traced = [t for t in Database(file).trials() if t.candidate.trace is not None]
    assert len(traced) == 4
    assert any(t.status == "ok" for t in traced)
    assert len(set(ids(file))) == 5
    assert search.states["no rule"].best_s is not None


KILLED_RUN = """
import sys
from pathlib import Path
from support import tiny_tunables
from support.trials import trial
from tvmscope.compiler import targets
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.trials.runners import LocalRunner
from tvmscope.tuning.search.loop import Limits, Search
from tvmscope.tuning.trials.workshop import Setting, Workshop

function, folder, file = map(Path, sys.argv[1:])
task = tiny_tunables.make_task(function)
setting = Setting(target=targets.host_target(cores=2), threads=2, cpu="a CPU", tvm="1",
                  repeat=2, min_repeat_ms=1.0, timeout_s=4.0)
builders = Builders(2, tunables=tiny_tunables.TUNABLES)
with Workshop(builders, LocalRunner(threads=2), folder, setting) as workshop:
    planned = PlannedTask(task=task, total_s=1.0, share=1.0, least_s=0.0)
    Search([planned], workshop, Database(file), Limits(), batch=2,
           on_trial=lambda *_: print("trial", flush=True)).run()
"""


def test_after_a_kill_the_next_run_goes_on_from_the_records(
    workshop: Workshop, task: TuningTask, function: Path, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    path = os.pathsep.join(p for p in sys.path if p)
    tuner = subprocess.Popen(
        [sys.executable, "-c", KILLED_RUN, str(function), str(tmp_path / "built"), str(file)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert tuner.stdout is not None
    for _ in range(3):
        assert tuner.stdout.readline() == b"trial\n"
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    kept = len(ids(file))
    assert kept >= 3
    assert all(json.loads(line) for line in file.read_text().splitlines())
    again = searched(workshop, file, [planned(task)], Limits())
    assert again.states[task.key].earlier == kept
    assert sorted(ids(file)) == sorted(c.id for c in task.candidates)


@pytest.mark.parametrize("victim", ["builder", "runner"])
def test_a_killed_worker_ends_neither_the_search_nor_a_record(
    workshop: Workshop, task: TuningTask, tmp_path: Path, victim: str
) -> None:
    def kill_once(search: Search, _: object) -> None:
        if search.new == 3:
            runner: Any = workshop.runner
            pid = runner.pid if victim == "runner" else workshop.builders.pids[0]
            os.kill(pid, signal.SIGKILL)

    file = tmp_path / "records.jsonl"
    searched(workshop, file, [planned(task)], Limits(), on_trial=kill_once)
    assert sorted(ids(file)) == sorted(c.id for c in task.candidates)
    statuses = Counter(t.status for t in Database(file).trials())
    assert statuses["failed"] <= 1


def test_with_many_cores_a_batch_has_candidates_of_several_tasks(
    workshop: Workshop, task: TuningTask, tmp_path: Path
) -> None:
    second = replace(task, key="another task")
    seen: list[str] = []
    Search(
        [planned(task), planned(second, total_s=0.9)],
        workshop,
        Database(tmp_path / "records.jsonl"),
        Limits(trials=len(task.candidates) + 1),  # enough for all of one, and the other untuned
        batch=16,
        on_trial=lambda _, state: seen.append(state.task.key),
    ).run()
    assert min(Counter(seen)[key] for key in (task.key, second.key)) > 1
