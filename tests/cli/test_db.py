"""`tvmscope db`, run as users run it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.command import refuses, run
from support.trials import AVX2, CONV, H100, failed, trial, validated
from tvmscope.tuning.records.database import append, read
from tvmscope.tuning.records.lines import to_line

OWN = ("--db", "tuning_logs")
"""Without the shipped ones."""
FAULTS = {
    "torn": to_line(trial(50))[:-30] + b"\n",
    "not JSON": b"hello\n",
    "schema version 7": to_line(trial(51)).replace(b'"schema_version":2}', b'"schema_version":7}'),
    "seconds holds -0.001": to_line(trial(52)).replace(b'"seconds":[0.001', b'"seconds":[-0.001'),
    "seconds holds nan": to_line(trial(53)).replace(b'"seconds":[0.001', b'"seconds":[NaN'),
    "status ok without seconds": to_line(failed(54)).replace(b'"failed"', b'"ok"'),
    "the same record as line 1": to_line(trial(0, 1e-3)),
    "'threads'": to_line(trial(55)).replace(b'"threads":2', b'"threads":"two"'),
    "'workload' is missing": to_line(trial(56)).replace(b'"workload"', b'"work"'),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which models were tuned for a CPU and a GPU."""
    cpu = tmp_path / "tuning_logs" / "cpu_x86-64-v3" / "records.jsonl"
    append(cpu, *(trial(n, 1e-3 + n * 1e-4) for n in range(6)), failed(6), validated(0, 1e-3, 2e-3))
    append(cpu, trial(1, workload="matmul 8x8x8 float32"))
    append(tmp_path / "tuning_logs" / "cuda_sm_90" / "records.jsonl", trial(9, 5e-6, target=H100))
    return tmp_path


def cpu_file(folder: Path) -> Path:
    return folder / "tuning_logs" / "cpu_x86-64-v3" / "records.jsonl"


def test_list_shows_files_workloads_targets_counts_and_the_best(folder: Path) -> None:
    done = run("db", "list", *OWN, "--json", cwd=folder)
    cpu, gpu = json.loads(done.stdout)["files"]
    row = next(r for r in cpu["rows"] if r["workload"] == CONV)
    assert (row["target"], row["threads"]) == ("cpu:x86-64-v3", 2)
    assert row["summary"] == {
        "trials": 7, "failed": 1, "validated": 1, "best_s": pytest.approx(1.01e-3),
        "gain": pytest.approx(0.495),
    }  # fmt: skip
    assert [r["target"] for r in gpu["rows"]] == ["cuda:sm_90"]
    assert "9 records" in done.stderr
    assert "49.5%" in done.stderr


def test_list_of_nothing_says_how_to_begin(tmp_path: Path) -> None:
    done = run("db", "list", cwd=tmp_path)
    assert done.returncode == 0
    assert "tvmscope tune" in done.stderr


def test_list_by_target(folder: Path) -> None:
    done = run("db", "list", *OWN, "--target", "cuda", "--json", cwd=folder)
    rows = [row for file in json.loads(done.stdout)["files"] for row in file["rows"]]
    assert [row["target"] for row in rows] == ["cuda:sm_90"]


def test_a_named_database_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refuses(run("db", "list", "--db", "no.jsonl", cwd=tmp_path), 2, "no database no.jsonl")


def test_show_lists_the_fastest_first(folder: Path) -> None:
    done = run("db", "show", *OWN, "conv2d", "--target", "cpu", "--top", "3", "--json", cwd=folder)
    found = json.loads(done.stdout)
    assert [t["candidate"]["params"]["tile"] for t in found] == [0, 0, 1]
    assert "tile=0 layout=NCHW16c" in done.stderr


def test_show_of_an_unknown_workload_is_refused(folder: Path) -> None:
    refuses(run("db", "show", "lstm", cwd=folder), 2, "lstm", "db list")


def test_merge_keeps_equal_records_once(folder: Path) -> None:
    other = folder / "other.jsonl"
    append(other, trial(0, 1e-3), trial(77))
    done = run("db", "merge", str(cpu_file(folder)), str(other), "-o", "all.jsonl", cwd=folder)
    assert done.returncode == 0
    assert "10 records, 1 duplicates" in done.stderr
    assert len(list(read(folder / "all.jsonl"))) == 10
    again = run("db", "merge", str(other), "-o", "all.jsonl", cwd=folder)
    refuses(again, 2, "all.jsonl exists")


def test_prune_keeps_the_best_and_the_validated_and_a_backup(folder: Path) -> None:
    file = cpu_file(folder)
    before = file.read_bytes()
    done = run("db", "prune", str(file), "--keep", "2", "--json", cwd=folder)
    assert json.loads(done.stdout)["removed"] == 5
    assert f"-5  {CONV}" in done.stderr
    left = [(t.stage, t.candidate.params["tile"]) for t in read(file) if t.workload == CONV]
    assert left == [("search", 0), ("search", 1), ("validated", 0)]
    assert file.with_name("records.jsonl.bak").read_bytes() == before


def test_prune_with_yes_keeps_no_backup(folder: Path) -> None:
    run("db", "prune", str(cpu_file(folder)), "--keep", "1", "--yes", cwd=folder)
    assert [f.name for f in cpu_file(folder).parent.iterdir()] == ["records.jsonl"]


def test_export_writes_a_selection_that_import_takes(folder: Path) -> None:
    done = run("db", "export", *OWN, "--target", "cpu", "--workload", "conv2d", cwd=folder)
    assert done.stdout.count("\n") == 8
    (folder / "some.jsonl").write_text(done.stdout)
    (folder / "elsewhere").mkdir()
    taken = run("db", "import", "../some.jsonl", cwd=folder / "elsewhere")
    assert taken.returncode == 0
    file = cpu_file(folder / "elsewhere")
    assert len(list(read(file))) == 8


def test_export_does_not_overwrite(folder: Path) -> None:
    (folder / "x.jsonl").touch()
    refuses(run("db", "export", "-o", "x.jsonl", cwd=folder), 2, "x.jsonl exists")
    assert run("db", "export", *OWN, "-o", "x.jsonl", "--force", cwd=folder).returncode == 0
    assert len(list(read(folder / "x.jsonl"))) == 10


def test_export_of_the_best_is_what_builds_use_in_a_fixed_order(folder: Path) -> None:
    append(cpu_file(folder), validated(4, 0.5e-3, 2e-3), validated(7, 1e-3, workload="a first"))
    done = run("db", "export", *OWN, "--best", "-o", "best.jsonl", cwd=folder)
    assert done.returncode == 0
    assert "2 records, " in done.stderr
    found = [(t.workload, t.candidate.params["tile"]) for t in read(folder / "best.jsonl")]
    assert found == [("a first", 7), (CONV, 4)]


def test_metaschedule_export_without_traces_says_why(folder: Path) -> None:
    done = run("db", "export", *OWN, "--metaschedule", "ms", "--target", "cpu", cwd=folder)
    refuses(done, 1, "9 records have no trace")


def test_import_takes_what_is_right_and_names_the_rest(tmp_path: Path) -> None:
    append(tmp_path / "mine.jsonl", trial(2))
    (tmp_path / "in.jsonl").write_bytes(to_line(trial(1)) + b"nonsense\n" + to_line(trial(2)))
    done = run("db", "import", "in.jsonl", "--db", "mine.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "line 2: incomplete, or not JSON" in done.stderr
    assert "1 records added, 1 were there" in done.stderr
    assert list(read(tmp_path / "mine.jsonl")) == [trial(2), trial(1)]


def test_verify_of_a_good_database_is_silent_success(folder: Path) -> None:
    done = run("db", "verify", *OWN, cwd=folder)
    assert done.returncode == 0
    assert done.stderr.count(": ") == 2
    assert done.stderr.count("ok") == 2


def test_verify_finds_planted_corruption(folder: Path) -> None:
    file = cpu_file(folder)
    first, *rest = file.read_bytes().splitlines(keepends=True)
    torn_end = to_line(trial(60))[:100]
    file.write_bytes(b"".join([first, *FAULTS.values(), *rest, torn_end]))
    done = run("db", "verify", str(file), "--json", cwd=folder)
    assert done.returncode == 1
    (report,) = json.loads(done.stdout).values()
    assert report["records"] == len(rest) + 2  # the duplicate is a record too
    faults = report["listed"]
    assert [f["line"] for f in faults] == [*range(2, 2 + len(FAULTS)), 2 + len(FAULTS) + len(rest)]
    for fault, what in zip(faults, (*FAULTS, "incomplete"), strict=True):
        assert what in fault["what"]
    assert "line 3: incomplete, or not JSON" in done.stderr


def test_verify_counts_what_a_search_measured_twice(folder: Path) -> None:
    append(cpu_file(folder), replace(trial(2, 7e-3), target=AVX2))
    done = run("db", "verify", "--json", str(cpu_file(folder)), cwd=folder)
    assert done.returncode == 0
    (report,) = json.loads(done.stdout).values()
    assert report["remeasured"] == 1
