"""Which records are used on which machine, and that nothing else is used silently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.trials import ARM, AVX2, AVX512, CONV, H100, TVM, ZEN, trial, validated
from tvmscope.compiler.schedules import cpu, rule_named
from tvmscope.core.target import Target
from tvmscope.core.tuning import SHIPPED_NAME, Candidate, Trial, origins
from tvmscope.errors import UsageError
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database, append
from tvmscope.tuning.records.matching import Found, Host, choose

HOST = Host(target=AVX2, threads=2, tvm=TVM, cpu="a CPU")


def found(folder: Path, *trials: Trial, host: Host = HOST) -> Found:
    file = folder / "records.jsonl"
    file.unlink(missing_ok=True)
    for one in trials:
        append(file, one)
    return choose([Database(file)], host)


def tile(result: Found) -> object:
    return result.choices[CONV].candidate.params["tile"] if result.choices else None


def test_the_largest_gain_is_chosen(tmp_path: Path) -> None:
    result = found(tmp_path, validated(1, 1.5e-3), validated(2, 1e-3), validated(3, 1.2e-3))
    assert tile(result) == 2
    assert result.choices[CONV].source == str(tmp_path / "records.jsonl")
    assert result.warnings == ()


def test_a_trial_that_was_only_searched_is_not_used(tmp_path: Path) -> None:
    assert found(tmp_path, trial(1, 1e-9)).choices == {}


@pytest.mark.parametrize(("seconds", "used"), [(0.995, False), (1.2, False), (0.98, True)])
def test_less_than_one_percent_is_not_worth_it(tmp_path: Path, seconds: float, used: bool) -> None:
    result = found(tmp_path, validated(1, seconds * 1e-3 / 1.01, 1e-3))
    assert (tile(result) == 1) == used


def test_the_latest_validation_of_a_candidate_counts(tmp_path: Path) -> None:
    wrong = replace(validated(1), status="wrong", reason="error 0.5")
    assert found(tmp_path, validated(1, 1e-3), wrong).choices == {}
    assert tile(found(tmp_path, wrong, validated(1, 1e-3))) == 1


def test_not_faster_here_outweighs_faster_elsewhere(tmp_path: Path) -> None:
    here = validated(1, 2e-3, 2e-3)
    assert found(tmp_path, here, validated(1, 1e-3, cpu="another")).choices == {}


def test_a_record_of_other_threads_or_cpu_is_second_choice_and_told(tmp_path: Path) -> None:
    other = validated(1, 0.5e-3, threads=8, cpu="another")
    assert tile(found(tmp_path, other, validated(2, 1.5e-3))) == 2
    result = found(tmp_path, other)
    assert tile(result) == 1
    assert (result.choices[CONV].threads, result.choices[CONV].cpu) == (8, "another")


@pytest.mark.parametrize(
    ("tuned", "host", "reason"),
    [
        (AVX2, ZEN, None),
        (ZEN, AVX2, "sha vaes"),
        (AVX2, AVX512, "256 bits, not 512"),
        (AVX512, AVX2, "avx512f"),
        (ARM, AVX2, "cortex-a72"),
        (AVX2, ARM, "x86-64-v3"),
        (ARM, replace(ARM, triple=None), None),
        (H100, AVX2, "cuda:sm_90"),
        (H100, H100, None),
        (H100, Target(kind="cuda", arch="sm_80"), "cuda:sm_90"),
    ],
)
def test_a_record_is_used_where_its_features_are(
    tmp_path: Path, tuned: Target, host: Target, reason: str | None
) -> None:
    result = found(tmp_path, validated(1, target=tuned), host=replace(HOST, target=host))
    if reason is None:
        assert tile(result) == 1
    else:
        assert result.choices == {}
        (warning,) = result.warnings
        assert "1 records not used" in warning
        assert reason in warning


def test_parameters_of_a_changed_rule_are_never_used_but_traces_are(tmp_path: Path) -> None:
    rule = rule_named("conv2d")
    assert rule is not None
    same = replace(validated(1), rule="conv2d", rule_version=rule.version)
    assert tile(found(tmp_path, same)) == 1
    other = replace(same, rule_version=rule.version + 1)
    result = found(tmp_path, other)
    assert result.choices == {}
    told = f"the schedule rule conv2d in version {rule.version + 1}, not {rule.version}"
    assert told in result.warnings[0]
    traced = replace(other, candidate=Candidate(trace="[]"))
    assert found(tmp_path, traced).choices[CONV].candidate.trace == "[]"


def test_a_changed_rule_voids_its_own_records_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = rule_named("conv2d")
    assert rule is not None
    mine = replace(validated(1), rule="conv2d", rule_version=rule.version)
    other = replace(validated(1, workload="matmul"), rule="matmul", rule_version=1)
    changed = tuple(
        replace(r, version=r.version + 1) if r.name == "conv2d" else r for r in cpu.RULES
    )
    monkeypatch.setattr(cpu, "RULES", changed)
    assert list(found(tmp_path, mine, other).choices) == ["matmul"]


def test_parameters_of_a_rule_that_is_not_here_are_never_used(tmp_path: Path) -> None:
    theirs = replace(validated(1), rule="theirs", rule_version=1, rule_from="fast-rules 1.2")
    result = found(tmp_path, theirs)
    assert result.choices == {}
    assert "rule theirs of fast-rules 1.2, which is not installed" in result.warnings[0]
    rule = rule_named("conv2d")
    assert rule is not None
    renamed = replace(theirs, rule="conv2d", rule_version=rule.version)
    assert "of fast-rules 1.2, not of tvmscope" in found(tmp_path, renamed).warnings[0]


def test_another_tvm_is_never_used(tmp_path: Path) -> None:
    result = found(tmp_path, validated(1, tvm="0.26.0"), validated(2, tvm=""))
    assert result.choices == {}
    assert result.skipped == {
        f"tuned with TVM 0.26.0, not {TVM}": 1,
        f"tuned with TVM of an unknown version, not {TVM}": 1,
    }


def test_the_first_database_wins_and_can_veto(tmp_path: Path) -> None:
    mine, shipped = tmp_path / "mine.jsonl", tmp_path / "shipped.jsonl"
    append(shipped, validated(1, 0.5e-3), validated(7, 1e-3, workload="other"))
    append(mine, validated(2, 1.5e-3))
    files = [Database(mine), Database(shipped, name="shipped")]
    result = choose(files, HOST)
    assert tile(result) == 2
    assert result.choices["other"].source == "shipped"
    append(mine, validated(7, 2e-3, 2e-3, workload="other"))
    assert "other" not in choose(files, HOST).choices


def test_shipped_records_for_other_machines_are_no_matter_of_the_user(tmp_path: Path) -> None:
    append(tmp_path / "shipped.jsonl", validated(1), validated(1, workload="other", tvm="0.1"))
    shipped = Database(tmp_path / "shipped.jsonl", name=SHIPPED_NAME)
    result = choose([shipped], replace(HOST, target=AVX512))
    assert (result.choices, result.warnings) == ({}, ())
    assert list(choose([shipped], HOST).choices) == [CONV]


def test_a_choice_says_where_and_when_it_was_proven(tmp_path: Path) -> None:
    files = [tmp_path / "mine.jsonl", tmp_path / "shipped.jsonl"]
    append(files[0], validated(1, workload="a"))
    old, new = "2026-01-02T10:00:00Z", "2026-03-04T10:00:00Z"
    append(
        files[1], *(validated(1, workload=w, cpu="Z", date=d) for w, d in (("b", new), ("c", old)))
    )
    found = choose([Database(files[0], name="mine"), Database(files[1], name=SHIPPED_NAME)], HOST)
    assert found.choices["a"].origin == "mine (a CPU, 2 threads, 2026-11-15)"
    assert origins(found.choices.values()) == (
        "2 from shipped (Z, 2 threads, 2026-03-04); 1 from mine (a CPU, 2 threads, 2026-11-15)"
    )
    assert origins(()) == ""


def test_only_the_workloads_asked_for_are_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    append(file, validated(1), validated(1, workload="other", tvm="0.26"))
    result = choose([Database(file)], HOST, [CONV])
    assert list(result.choices) == [CONV]
    assert result.skipped == {}


def test_a_missing_file_is_a_warning(tmp_path: Path) -> None:
    result = choose([Database(tmp_path / "no.jsonl")], HOST)
    assert result.choices == {}
    (warning,) = result.warnings
    assert "no.jsonl: No such file" in warning


def test_damaged_lines_are_a_warning(tmp_path: Path) -> None:
    append(tmp_path / "records.jsonl", validated(1))
    with (tmp_path / "records.jsonl").open("a") as stream:
        stream.write("{torn\n")
    result = choose([Database(tmp_path / "records.jsonl")], HOST)
    assert tile(result) == 1
    assert "1 lines skipped: incomplete" in result.warnings[0]


def test_db_none_looks_nowhere() -> None:
    assert records.databases("none", AVX2) == []
    with pytest.raises(UsageError, match="stores no records"):
        records.file_to_write("none", AVX2)


def test_own_folder_is_searched_before_others_and_the_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "SHIPPED", tmp_path / "package")
    for target in (AVX2, ZEN, H100):
        append(records.file_to_write(None, target), validated(1, target=target))
    append(tmp_path / "package" / "avx2.jsonl", validated(1))
    names = [db.name for db in records.databases(None, ZEN)]
    assert names == [
        "tuning_logs/cpu_znver3/records.jsonl",
        "tuning_logs/cpu_x86-64-v3/records.jsonl",
        "shipped",
    ]
    assert len(records.databases("tuning_logs")) == 3
    assert [db.name for db in records.databases("one.jsonl")] == ["one.jsonl"]


def test_db_path_is_a_file_or_a_folder(tmp_path: Path) -> None:
    assert records.file_to_write(str(tmp_path), AVX2) == tmp_path / "records.jsonl"
    assert records.file_to_write(str(tmp_path / "x.jsonl"), AVX2) == tmp_path / "x.jsonl"
