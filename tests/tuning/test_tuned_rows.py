"""Rows that are compiled with records: there once records are, apart from the untuned row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tvmscope
from tvmscope.core.session import load
from tvmscope.core.tuning import Candidate
from tvmscope.report.formats import console, html
from tvmscope.runtime.artifact import read_kernels
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database

QUICK = {"target": "cpu", "iterations": 2, "warmup": 1, "threads": 2}


def test_records_make_a_row_of_their_own(net: Path, database: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(net),
        backends="tvmscope,tvmscope-tuned",
        db=str(database),
        output=tmp_path / "session",
        **QUICK,
    )
    rows = {r.task.variant.backend: r for r in session.results}
    assert [r.status for r in rows.values()] == ["ok", "ok"]
    assert rows["tvmscope"].task.variant.tuning is None
    assert rows["tvmscope-tuned"].task.variant.tuning == str(database)
    (comparison,) = session.comparisons
    assert (comparison.key.name, comparison.against.name) == ("tvmscope-tuned", "tvmscope")
    tuned = {}
    for folder in (tmp_path / "session" / "artifacts").iterdir():
        tuned[folder.name.startswith("tvmscope-tuned")] = [
            k.tuned for k in read_kernels(folder) if k.tuned
        ]
    assert tuned[False] == []
    (choice,) = tuned[True]
    assert choice.source == str(database)
    assert choice.candidate != Candidate()


def test_without_records_the_row_says_so_when_asked_for(net: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(net),
        backends="tvmscope,tvmscope-tuned",
        db="none",
        output=tmp_path / "session",
        **QUICK,
    )
    untuned, tuned = session.results
    assert untuned.status == "ok"
    assert tuned.status == "unavailable"
    assert "no tuning records" in (tuned.reason or "")


def test_a_missing_database_is_a_reason_and_the_untuned_row(net: Path, tmp_path: Path) -> None:
    session = tvmscope.bench(
        str(net),
        backends="tvmscope,tvmscope-tuned",
        db=str(tmp_path / "absent.jsonl"),
        output=tmp_path / "session",
        **QUICK,
    )
    assert [r.status for r in session.results] == ["ok", "unavailable"]
    assert "absent.jsonl" in (session.results[1].reason or "")


def test_compile_uses_the_records_unless_told_not_to(
    net: Path, database: Path, tmp_path: Path
) -> None:
    used = tvmscope.compile(str(net), tmp_path / "a", target="cpu", threads=2, db=str(database))
    plain = tvmscope.compile(str(net), tmp_path / "b", target="cpu", threads=2, db="none")
    assert (used.tuned, plain.tuned) == (True, False)
    assert any(k.tuned for k in read_kernels(used.path))
    assert not any(k.tuned for k in read_kernels(plain.path))


def test_shipped_records_are_used_by_default_and_the_reports_say_so(
    net: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SHIPPED", database.parent)
    monkeypatch.chdir(tmp_path)
    (trial,) = Database(database).trials()
    tvmscope.compile(str(net), tmp_path / "a", target="cpu", threads=2)
    (choice,) = [k.tuned for k in read_kernels(tmp_path / "a") if k.tuned]
    assert (choice.source, choice.threads, choice.date) == ("shipped", 2, trial.date)
    tvmscope.compile(str(net), tmp_path / "b", target="cpu", threads=2, db="none")
    assert not any(k.tuned for k in read_kernels(tmp_path / "b"))
    session = tvmscope.analyze(str(net), backends="tvmscope,tvmscope-tuned", **QUICK)
    cpu = records.host(session.targets[0], 2).cpu
    origin = f"shipped ({cpu}, 2 threads, {trial.date[:10]})"
    assert f"tuned kernels: 1 from {origin}" in console.to_text([session], width=300)
    assert f"tuned: {origin}" in html.render([session])


def test_the_users_own_record_comes_before_the_shipped_one(
    net: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SHIPPED", database.parent)
    monkeypatch.chdir(tmp_path)
    (trial,) = Database(database).trials()
    own = records.file_to_write(None, trial.target)
    Database(own).append(trial)
    tvmscope.compile(str(net), tmp_path / "a", target="cpu", threads=2)
    assert [k.tuned.source for k in read_kernels(tmp_path / "a") if k.tuned] == [str(own)]


def test_a_model_that_no_record_is_about_is_not_compiled_twice(
    net: Path, database: Path, tmp_path: Path
) -> None:
    (trial,) = Database(database).trials()
    other = Database(tmp_path / "other.jsonl")
    other.append(replace(trial, workload="conv2d of another model"))
    session = tvmscope.bench(
        str(net),
        backends="tvmscope,tvmscope-tuned",
        db=str(other.path),
        output=tmp_path / "session",
        **QUICK,
    )
    assert [r.status for r in session.results] == ["ok", "unavailable"]
    assert "matches a kernel of this model" in (session.results[1].reason or "")
    assert len(list((tmp_path / "session" / "artifacts").iterdir())) == 1


@pytest.mark.slow  # long
def test_analyze_tunes_first_and_shows_what_came_of_it(net: Path, tmp_path: Path) -> None:
    session = tvmscope.analyze(
        str(net),
        tune_first=True,
        trials=8,
        metaschedule=False,
        min_repeat_ms=1.0,
        backends="tvmscope,tvmscope-tuned",
        db=str(tmp_path / "mine.jsonl"),
        output=tmp_path / "session",
        **QUICK,
    )
    assert sum(task.trials for task in session.tuning) == 8
    assert load(tmp_path / "session" / "tuning").complete
    untuned, tuned = session.results
    assert untuned.status == "ok"
    used = [task for task in session.tuning if task.chosen]
    assert tuned.status == ("ok" if used else "unavailable")  # on a busy machine nothing may be
    if used:
        assert f"{len(used)} from {tmp_path / 'mine.jsonl'}" in console.to_text([session], 300)
