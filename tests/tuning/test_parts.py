"""What the parts of a choice are worth: taken back one by one, or the reason why they cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support import tiny_tunables
from tvmscope.core.options import MeasureOptions
from tvmscope.core.tuning import Candidate, TuningTask
from tvmscope.tuning.proof.parts import variants, weigh, without
from tvmscope.tuning.proof.validate import Validator
from tvmscope.tuning.trials.workshop import Workshop

WINNER = Candidate(params={"tile": 16, "unroll": 1})
TRACE = json.dumps(
    [
        [
            ["GetLoops", ["b0"], [], ["l1", "l2"]],
            ["Parallel", ["l1"], [], []],
            ["SamplePerfectTile", ["l2"], [2, 64], ["v1", "v2"]],
            ["Split", ["l2", "v1", "v2"], [], ["l3", "l4"]],
            ["Vectorize", ["l4"], [], []],
            ["Annotate", ["l3", 16], ["pragma_auto_unroll_max_step"], []],
            ["Annotate", ["l3", 1], ["other"], []],
        ],
        [[2, [4, 16]]],
    ]
)


@pytest.fixture(scope="module")
def validator(workshop: Workshop) -> Iterator[Validator]:
    with Validator(workshop, MeasureOptions(duration_s=0.2, min_rounds=6)) as made:
        yield made


def test_what_is_drawn_stays_with_its_step_when_others_are_left_out() -> None:
    steps, decisions = json.loads(str(without(TRACE, "parallel")))
    assert [step[0] for step in steps][:2] == ["GetLoops", "SamplePerfectTile"]
    assert decisions == [[1, [4, 16]]]
    assert without(TRACE, "set_scope") is None


def test_only_unrolling_notes_count_as_unrolling() -> None:
    steps, _ = json.loads(str(without(TRACE, "unroll")))
    assert [step[2] for step in steps if step[0] == "Annotate"] == [["other"]]


def test_every_parameter_and_every_primitive_that_occurs_is_a_part(task: TuningTask) -> None:
    parts = {part.name: candidate for part, candidate in variants(task, WINNER, TRACE)}
    assert set(parts) == {"tile", "unroll", "parallel", "vectorize"}
    traced = Candidate(params={}, trace=TRACE)
    assert {p.kind for p, _ in variants(task, traced, TRACE)} == {"primitive"}


def test_a_part_is_worth_what_the_kernel_loses_without_it(
    validator: Validator, task: TuningTask
) -> None:
    found = {(p.kind, p.name): p for p in weigh(validator, task, WINNER)}
    vectors = found["primitive", "vectorize"]
    assert vectors.factor is not None
    assert vectors.interval is not None
    assert vectors.interval[0] <= vectors.factor <= vectors.interval[1]
    assert found["parameter", "tile"].factor is not None  # the loops as they are written
    for part in found.values():
        assert (part.factor is None) == (part.reason is not None)


def test_a_part_that_cannot_be_taken_back_has_a_reason_and_no_number(
    validator: Validator, function: Path
) -> None:
    good = {"tile": 16, "unroll": 0}
    task = tiny_tunables.make_task(function, (Candidate(params=good),))
    winner = Candidate(params={**good, "without": "crash"})
    found = {p.name: p for p in weigh(validator, task, winner) if p.kind == "parameter"}
    assert found["without"].factor is not None
    tile = found["tile"]
    assert tile.factor is None
    assert "building" in str(tile.reason)


def test_no_more_is_measured_when_time_is_over(validator: Validator, task: TuningTask) -> None:
    assert weigh(validator, task, WINNER, over=lambda: True) == []


def test_a_generated_kernels_parameters_are_reset_to_those_used_without_tuning(
    task: TuningTask,
) -> None:
    own = {"template": "conv2d", "m": 64, "n": 64, "split": 1}
    lowering = replace(task.lowerings[0], params={}, own=own)
    unit = replace(task, lowerings=(lowering,), loops=False)
    winner = Candidate(params={"template": "conv2d", "m": 128, "n": 64, "split": 4})
    parts = {part.name: dict(c.params) for part, c in variants(unit, winner, None)}
    assert parts == {
        "m": {**winner.params, "m": 64},
        "split": {**winner.params, "split": 1},
    }
    other = Candidate(params={**winner.params, "template": "cublaslt"})
    assert not list(variants(unit, other, None))
