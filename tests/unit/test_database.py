"""The tuning database: nothing is lost, torn or mixed up, whoever writes and whoever is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tvmscope
from support.trials import ARM, AVX2, CONV, TVM, failed, trial, validated
from tvmscope.core.tuning import Candidate
from tvmscope.errors import TuneError
from tvmscope.messages import Message, msg
from tvmscope.tuning.records import database, functions, upkeep
from tvmscope.tuning.records.database import Database, append, read
from tvmscope.tuning.records.lines import from_line, to_line
from tvmscope.tuning.records.validity import outdated

HERE = str(Path(__file__).parents[1])
SOURCE = str(Path(tvmscope.__file__).parents[1])


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    file = tmp_path / "new" / "records.jsonl"
    written = [trial(1), failed(2), validated(3, clock_hz=3e9, seed=7)]
    for one in written:
        append(file, one)
    assert list(read(file)) == written


def test_a_reason_can_still_be_translated_when_it_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    reason = msg("building: {reason}", reason=msg("no library was written"))
    append(file, replace(failed(1), reason=reason), replace(failed(2), reason="foreign words"))
    first, second = read(file)
    assert isinstance(first.reason, Message)
    assert (first.reason, first.reason.id) == (reason, reason.id)
    assert isinstance(first.reason.args["reason"], Message)
    assert second.reason == "foreign words"
    assert not isinstance(second.reason, Message)
    assert upkeep.verify(file).faults == 0


def test_a_line_torn_by_a_killed_writer_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    append(file, trial(1))
    with file.open("ab") as stream:
        stream.write(to_line(trial(2))[:-40])
    rejected: list[tuple[int, str]] = []
    append(file, trial(3))
    assert list(read(file, lambda *a: rejected.append(a))) == [trial(1), trial(3)]
    assert rejected == [(2, "incomplete, or not JSON")]


@pytest.mark.parametrize("cut", range(1, 700, 53))
def test_a_cut_anywhere_leaves_the_lines_before_it(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "records.jsonl"
    append(file, trial(1), trial(2))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - cut])
    append(file, trial(3))
    found = list(Database(file).trials())
    assert found[-1] == trial(3)
    assert found[0] == trial(1) or cut > len(whole) / 2


def test_a_line_without_its_newline_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_bytes(to_line(trial(1)).rstrip(b"\n"))
    db = Database(file)
    assert list(db.trials()) == [trial(1)]
    append(file, trial(2))
    assert list(db.trials()) == [trial(1), trial(2)]


def write_many(file: str, writer: int, count: int) -> None:
    for number in range(count):
        append(Path(file), trial(writer * 1000 + number))


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_many, args=(str(file), n, 50)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = [t.candidate.params["tile"] for t in read(file)]
    assert sorted(found) == sorted(w * 1000 + n for w in range(4) for n in range(50))
    for writer in range(4):
        mine = [tile for tile in found if int(tile) // 1000 == writer]
        assert mine == sorted(mine)


WRITER = """
import sys
from pathlib import Path
from typing import Any
from support.trials import trial
from tvmscope.tuning.records.database import append
number = int(sys.argv[2])
while True:
    append(Path(sys.argv[1]), trial(number))
    print(number, flush=True)
    number += 1
"""


def test_kill_9_loses_no_record_that_was_reported(tmp_path: Path) -> None:
    file, reported, first = tmp_path / "records.jsonl", 0, 0
    for round_ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), str(first)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((SOURCE, HERE))},
        )
        assert writer.stdout is not None
        for _ in range(5):
            reported = int(writer.stdout.readline())
        time.sleep(0.003 * round_)  # so that it dies at different moments
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        reported = int(rest[-1]) if rest else reported
        found = [int(t.candidate.params["tile"]) for t in read(file)]
        assert found[: reported + 1] == list(range(reported + 1))
        assert len(found) <= reported + 2  # the one it was about to report
        first = len(found)


def test_a_full_disk_is_an_error_and_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "records.jsonl"
    append(file, trial(1))
    before, write = file.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:50]))
    with pytest.raises(TuneError, match=r"records\.jsonl.*50 of"):
        append(file, trial(2))
    assert file.read_bytes() == before


def test_foreign_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    append(file, trial(1))
    with file.open("ab") as stream:
        stream.write(b'not json\n\n[1]\n{"a": 1}\n\xff\xfe\n{"schema_version": 99}\n')
    append(file, trial(2))
    db = Database(file)
    assert list(db.trials()) == [trial(1), trial(2)]
    assert sum(db.rejected.values()) == 5
    assert db.rejected["incomplete, or not JSON"] == 2
    assert "schema version 99; this tvmscope reads 1 to 2" in db.rejected


def test_a_record_written_with_spaces_is_found_too(tmp_path: Path) -> None:
    import json

    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(json.loads(to_line(validated(9))), sort_keys=True) + "\n")
    assert list(Database(file).trials(CONV, validated=True)) == [validated(9)]


def test_a_line_without_end_takes_no_more_memory_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LINE_LIMIT", 4096)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"x" * 100_000 + b"\n")
    append(file, trial(1))
    db = Database(file)
    assert list(db.trials()) == [trial(1)]
    assert sum(db.rejected.values()) == 1


@pytest.mark.parametrize("make", ["missing", "folder", "empty"])
def test_no_usable_file_is_no_records_and_no_crash(tmp_path: Path, make: str) -> None:
    path = tmp_path / "records.jsonl"
    if make == "folder":
        path.mkdir()
    if make == "empty":
        path.touch()
    db = Database(path)
    assert list(db.trials()) == []
    assert (db.trouble is None) == (make == "empty")


def test_an_open_database_sees_what_others_append_and_prune(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    db = Database(file)
    assert db.tried(CONV, AVX2, 2) == set()
    append(file, trial(1))
    assert db.tried(CONV, AVX2, 2) == {trial(1).candidate.id}
    append(file, trial(2))
    assert len(db.tried(CONV, AVX2, 2)) == 2
    database.replace_with(file, [to_line(trial(3))], backup=None)
    assert db.tried(CONV, AVX2, 2) == {trial(3).candidate.id}


def test_tried_counts_failures_but_not_other_circumstances(tmp_path: Path) -> None:
    db = Database(tmp_path / "records.jsonl")
    db.append(failed(1))
    db.append(validated(2))
    for other in ({"target": ARM}, {"threads": 4}, {"workload": "other"}, {"tvm": "0.26"}):
        db.append(trial(3, **other))
    assert db.tried(CONV, AVX2, 2, tvm=TVM) == {trial(1).candidate.id}
    assert db.workloads() == [CONV, "other"]


@pytest.mark.parametrize(
    "bad",
    [
        {"seconds": ()},
        {"seconds": (-1.0,)},
        {"seconds": (float("nan"),)},
        {"seconds": (float("inf"),)},
        {"seconds": (0.0,)},
        {"threads": 0},
        {"stage": "validated"},
        {"workload": ""},
    ],
)
def test_an_impossible_trial_is_never_written(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(TuneError):
        append(tmp_path / "records.jsonl", replace(trial(1), **bad))
    assert not (tmp_path / "records.jsonl").exists()


def test_the_function_of_a_trace_is_kept_beside_the_file(tmp_path: Path) -> None:
    db = Database(tmp_path / "records.jsonl")
    traced = trial(candidate=Candidate(trace="[[], []]"))
    db.append(traced, function="{}")
    db.append(trial(1), function="{}")
    kept = functions.of(db.path, traced)
    assert kept is not None
    assert kept.read_text() == "{}"
    assert functions.of(db.path, trial(1)) is None
    assert len(list(kept.parent.iterdir())) == 1
    merged = tmp_path / "elsewhere" / "all.jsonl"
    upkeep.merge([db.path], merged)
    assert functions.of(merged, traced) is not None


def test_records_of_the_first_schema_are_read_with_the_rule_that_they_belong_to() -> None:
    file = Path(__file__).parents[1] / "data" / "records-schema1.jsonl"
    trials = list(read(file))
    assert [(t.rule, t.rule_version) for t in trials] == [
        ("matmul", 1),
        ("conv2d", 1),
        ("conv2d", 1),
        ("winograd", 1),
        ("conv2d", 1),
        ("depthwise", 1),
        (None, None),
        ("conv2d", 0),  # of an earlier generation of rules
    ]
    # The rules for convolutions have changed since, so that what was found for them is void.
    current = {t.rule for t in trials if outdated(t) is None}
    assert current == {"matmul", "depthwise", None}
    database = Database(file)
    assert len(list(database.trials(validated=True))) == len(trials)
    assert not database.rejected
    assert [from_line(to_line(t)) for t in trials] == trials
