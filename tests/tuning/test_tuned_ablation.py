"""`tvmscope ablate` with tuning records: what they are worth is a row like the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.command import refuses, run
from support.trials import ARM
from tvmscope.core.session import load
from tvmscope.core.tuning import Candidate
from tvmscope.runtime.artifact import read_kernels
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.records.database import Database
from tvmscope.workflow.ablating import ablate

COMMON = ("--target", "cpu", "--threads", "2")
QUICK = (*COMMON, "--iterations", "2", "--warmup", "1", "-o", "out")


@pytest.fixture
def foreign(database: Path, tmp_path: Path) -> Path:
    """The same record, of a processor of another kind."""
    (trial,) = Database(database).trials()
    Database(tmp_path / "foreign.jsonl").append(replace(trial, target=ARM))
    return tmp_path / "foreign.jsonl"


def rows_of(db: str | Path, *only: str, **more: object) -> dict[str | None, PlannedRow]:
    options = Options.of(target="cpu", threads=2, db=str(db), **more)
    (target,) = resolve_targets(options)
    return {
        row.variant.change: row
        for row in ablate.plan(options, ablate.ask(options, target, only), "onnx")
    }


@pytest.mark.slow  # long
def test_records_are_worth_a_row_whose_code_differs(
    net: Path, database: Path, tmp_path: Path
) -> None:
    asked = ("--only", "tuning,layout,conv2d-schedule,threads", "--db", str(database))
    done = run("ablate", str(net), *asked, *QUICK, cwd=tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
    shown = {line.split()[0] for line in done.stderr.splitlines() if "x [" in line}
    assert shown == {"tuning", "layout", "conv2d-schedule", "threads"}
    rows = {r.task.variant.change: r for r in load(tmp_path / "out").results}
    assert [r.status for r in rows.values()] == ["ok"] * 5
    assert rows[None].task.variant.tuning == str(database)
    assert rows["without tuning"].task.variant.tuning is None
    kernels = {
        change: {k.name: k for k in read_kernels(next((tmp_path / "out" / "artifacts").glob(name)))}
        for change, name in ((None, "tvmscope-cpu*"), ("without", "*-without-tuning-*"))
    }
    (tuned,) = [k for k in kernels[None].values() if k.tuned]
    assert tuned.tuned.candidate != Candidate()
    assert kernels["without"][tuned.name].tuned is None
    assert kernels["without"][tuned.name].tree != tuned.tree
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.count("tuned kernels: 1 from") == 1
    assert "| tuning |" in report


def test_without_records_there_is_no_row_and_asking_for_it_is_refused(
    net: Path, foreign: Path, tmp_path: Path
) -> None:
    assert not [change for change in rows_of("none") if "tuning" in (change or "")]
    asked = ("ablate", str(net), *COMMON, "--only", "tuning")
    done = run(*asked, "--db", "none", cwd=tmp_path)
    refuses(done, 2, "no kernel is tuned", "no tuning records", "tvmscope tune")
    done = run(*asked, "--db", str(foreign), cwd=tmp_path)
    refuses(done, 2, "no kernel is tuned", "1 records not used: tuned for cpu:cortex-a72")


def test_what_another_target_was_tuned_for_is_told_and_not_used(foreign: Path) -> None:
    rows = rows_of(foreign)
    assert "without tuning" not in rows
    whole = rows[None]
    assert whole.compile is not None
    assert whole.compile.choices == {}
    assert whole.warnings == ("1 records not used: tuned for cpu:cortex-a72",)
    assert not rows["without fusion"].warnings  # said once


def test_each_row_gets_what_speaks_for_its_own_target(database: Path) -> None:
    rows = rows_of(database)
    tuned = {change for change, row in rows.items() if row.compile and row.compile.choices}
    assert {None, "without fusion", "without threads", "without conv2d-schedule"} <= tuned
    assert not tuned & {"without tuning", "with nothing", "only layout", "only target-features"}
    if "without target-features" in rows:  # plain x86-64 lacks what the record asks for
        assert "without target-features" not in tuned
        (warning,) = rows["without target-features"].warnings
        assert warning.startswith("1 records not used: tuned for")


def test_records_about_other_models_are_no_row(net: Path, database: Path, tmp_path: Path) -> None:
    (trial,) = Database(database).trials()
    other = Database(tmp_path / "other.jsonl")
    other.append(replace(trial, workload="conv2d of another model"))
    asked = ("--only", "tuning", "--db", str(other.path))
    done = run("ablate", str(net), *asked, *QUICK, cwd=tmp_path, timeout_s=600)
    assert done.returncode == 0, done.stderr
    assert "tuning: no tuning record matches a kernel of this model" in done.stderr
    assert len(list((tmp_path / "out" / "artifacts").iterdir())) == 1
