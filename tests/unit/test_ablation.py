"""What an ablation's rows say about each optimisation, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support import samples
from support.rows import key
from tvmscope.analysis.ablation import NOTHING, SAME_CODE, comparisons, effects
from tvmscope.core.measurement import Result
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import Session, from_json, to_json
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.errors import UsageError
from tvmscope.report.formats import console, markdown
from tvmscope.report.formats.html import render as page
from tvmscope.report.sections import view
from tvmscope.workflow.ablating import switches

CPU = switches.of_device("cpu")


def row(
    change: str | None, median_s: float | None, target: str = "cpu:znver4", **more: Any
) -> Result:
    return samples.result(key("tvmscope", target, change=change), median_s, **more)


@pytest.fixture
def session() -> Session:
    single = row("without threads", 0.1)
    results = (
        row(None, 0.05),
        row("without winograd", 0.075),
        row("without fast-math", 0.025),
        row("without fusion", 0.05),
        replace(single, task=replace(single.task, threads=1)),
        row("without target-features", 0.2, target="cpu:x86-64"),
        row("without attention", None, status="unavailable", reason=SAME_CODE),
        row("without layout", None, status="failed", reason="it broke"),
        row(NOTHING, 5.0, target="cpu:x86-64"),
        row("only fusion", 2.5, target="cpu:x86-64"),
    )
    return replace(samples.session(*results), comparisons=comparisons(results))


def test_each_effect_is_time_without_over_time_with(session: Session) -> None:
    found = {(e.name, e.direction): e for e in effects(session)}
    assert found["winograd", "without"].factor == pytest.approx(1.5, rel=0.01)
    assert found["winograd", "without"].worth == "helps"
    assert found["fast-math", "without"].worth == "hurts"
    assert found["fusion", "without"].worth == "undecided"
    assert "would have been seen" in (found["fusion", "without"].reason or "")
    assert found["threads", "without"].factor == pytest.approx(2, rel=0.01)
    assert found["target-features", "without"].factor == pytest.approx(4, rel=0.01)
    assert found["everything", "without"].factor == pytest.approx(100, rel=0.01)
    assert found["fusion", "only"].factor == pytest.approx(2, rel=0.01)
    low, high = found["winograd", "without"].ci95 or (0.0, 0.0)
    assert 1 < low <= found["winograd", "without"].factor <= high


def test_what_was_not_measured_gets_no_number(session: Session) -> None:
    found = {e.name: e for e in effects(session) if e.factor is None}
    assert found["attention"].worth == "no effect"
    assert found["layout"].worth == "not measured"
    assert found["layout"].reason == "it broke"


def test_the_first_warm_up_run_is_set_against_warm_ones(session: Session) -> None:
    first, *others = session.results
    assert first.measurement is not None
    slow = replace(first.measurement, warmups_s=(0.2, 0.05))
    session = replace(session, results=(replace(first, measurement=slow), *others))
    (found,) = [e for e in effects(session) if e.name == "warm-up"]
    assert found.factor == pytest.approx(4, rel=0.01)
    assert found.ci95 is None
    assert found.worth == "one sample"


def test_other_sessions_have_no_effects() -> None:
    assert effects(samples.session(samples.result("tvmscope", 0.05))) == ()


def test_it_survives_json(session: Session) -> None:
    assert effects(from_json(to_json(session))) == effects(session)


def test_every_report_shows_the_table(session: Session) -> None:
    for text in (console.RENDERER.render([session]), markdown.render([session]), page([session])):
        assert "winograd" in text
        assert "1.5x" in text
        assert SAME_CODE in text.replace("\n", " ")


def test_the_whole_is_the_subject_even_where_a_part_does_harm(session: Session) -> None:
    rows = view.measured(session)
    own = view.subject(rows)
    assert own is not None
    assert own.name == "tvmscope"
    assert not view.headlines(session)


def test_switches_add_up_and_keep_what_was_off_already() -> None:
    base = CompileOptions(disabled_passes=("dead-code",), overrides={"winograd": False})
    chosen = switches.choose(CPU, ["fusion", "rows-schedule", "conv2d-schedule"])
    made = switches.off(chosen, base)
    assert set(made.disabled_passes) == {"dead-code", "fuse-ops", "fuse-tir"}
    assert set(made.overrides["disabled_rules"]) == {"rows", "conv2d"}
    assert made.overrides["winograd"] is False


def test_alone_keeps_what_an_optimisation_needs() -> None:
    (winograd,) = switches.choose(CPU, ["winograd"])
    made = switches.alone(winograd, CPU, CompileOptions())
    assert "block-layout" not in made.disabled_passes
    assert "pack-matmul" in made.disabled_passes
    assert "winograd" not in made.overrides
    assert "winograd" not in made.overrides["disabled_rules"]
    assert "conv2d" in made.overrides["disabled_rules"]


def test_an_unknown_optimisation_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no optimisation named magic; there are target-features"):
        switches.choose(CPU, ["magic"])


def test_leaving_tuning_out_leaves_no_choice_and_all_else() -> None:
    choice = Choice(candidate=Candidate(params={"tile": 4}), source="mine.jsonl")
    base = CompileOptions(choices={"conv2d": choice}, disabled_passes=("dead-code",))
    assert switches.off([switches.TUNING], base) == replace(base, choices={})
    (fusion,) = switches.choose(CPU, ["fusion"])
    assert switches.off([fusion], base).choices == base.choices
    assert switches.alone(fusion, CPU, base).choices == {}
