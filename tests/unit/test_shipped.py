"""The records that come with the package, and how they are picked."""

from __future__ import annotations

import random
from dataclasses import replace

from support.trials import CONV, ZEN, failed, trial, validated
from tvmscope.core.tuning import Candidate
from tvmscope.tuning.records import upkeep
from tvmscope.tuning.records.database import SHIPPED, read

MOST_BYTES = 300_000


def test_shipped_files_are_small_whole_and_hold_what_export_best_writes() -> None:
    files = sorted(SHIPPED.glob("*.jsonl"))
    assert SHIPPED.is_dir()
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for file in files:
        assert upkeep.verify(file).faults == 0
        kept = list(read(file))
        assert upkeep.best(kept) == kept
        assert {t.target.label for t in kept} == {f"cpu:{file.stem}"}


def test_the_best_is_one_trial_per_workload_and_machine_whatever_the_order() -> None:
    wanted = [
        validated(3, 1e-3, 3e-3, workload="a"),
        validated(2, 1e-3, 2e-3, cpu="another"),
        validated(5, 1e-3, 2.5e-3, target=ZEN),
        validated(1, 1e-3, 2e-3, workload="z"),
    ]
    others = [
        validated(4, 1e-3, 2e-3, workload="a"),
        trial(9, 1e-6, workload="a"),
        failed(8, workload="b"),
        validated(1, 2e-3, 2e-3, workload="c"),
        replace(validated(1, 1e-9, workload="a"), rule="conv2d", rule_version=99),
    ]
    everything = [*wanted, *others]
    found = upkeep.best(everything)
    assert sorted(t.workload for t in found) == sorted(["a", CONV, CONV, "z"])
    assert all(t in wanted for t in found)
    for seed in range(5):
        shuffled = random.Random(seed).sample(everything, len(everything))
        assert upkeep.best(shuffled) == found


def test_a_later_validation_of_a_candidate_replaces_the_earlier_one() -> None:
    early = validated(1, 1e-3, 2e-3)
    late = replace(validated(1, 2e-3, 2e-3), date="2027-01-01T00:00:00Z")
    assert upkeep.best([late, early]) == []
    assert upkeep.best([late, validated(2, 1e-3, 1.5e-3), early]) == [validated(2, 1e-3, 1.5e-3)]


def test_traces_hold_for_changed_rules_too() -> None:
    traced = replace(validated(1), rule="conv2d", rule_version=99, candidate=Candidate(trace="[]"))
    assert upkeep.best([traced]) == [traced]
