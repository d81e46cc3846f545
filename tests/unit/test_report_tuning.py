"""Tuning in reports: the plan, the summary, and the page's figure."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

import samples
from tvmscope.report import _tuning, html, tuning_table


def text(shown: RenderableType) -> str:
    console = Console(file=StringIO(), width=200, color_system=None)
    console.print(shown)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_plan_shows_what_is_tuned_and_why_the_rest_is_not() -> None:
    session = samples.tuned()
    wanted = [t for t in session.tuning if t.rule == "conv2d"]
    shown = text(tuning_table.plan(session))
    assert "conv2d 1x64x56x56 64x64x3x3" in shown
    assert "50%" in shown  # of its roof
    assert "30/40" in shown
    assert f"{len(wanted)} task would be tuned" in shown
    assert "not tuned, too small: 1" in shown


def test_a_narrow_terminal_cuts_no_number_of_the_plan() -> None:
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(tuning_table.plan(samples.tuned()))
    assert isinstance(console.file, StringIO)
    head, first = console.file.getvalue().splitlines()[:2]
    assert head.split()[-4:] == ["headroom", "gain/min", "to", "try"]
    assert first.split()[-1] == "30/40"
    assert "…" not in head + first


def test_a_search_without_trials_is_said_not_an_empty_table() -> None:
    session = samples.tuned()
    untried = [replace(t, trials=0, earlier=0) for t in session.tuning]
    shown = text(tuning_table.summary(replace(session, tuning=tuple(untried))))
    assert shown.strip() == "no candidate was tried"


def test_the_summary_shows_what_is_used_and_what_it_gained() -> None:
    shown = text(tuning_table.summary(samples.tuned()))
    assert "1.20x (1.15-1.25)" in shown
    assert "columns=4" in shown
    assert "no candidate was faster" in shown
    assert "33 trials in this run, 10 in earlier ones; 1 failed, 0 wrong" in shown
    assert "\x1b" not in shown


def test_the_page_draws_the_best_speed_over_the_search() -> None:
    session = samples.tuned()
    (figure,) = _tuning.figures(session, "m1")
    (line,) = figure["lines"]
    assert line["x"] == [1.0, 60.0]
    assert line["y"] == [0.01 / 0.009, 0.01 / 0.008]
    page = html.render([session])
    assert 'id="m1-tuning-figure"' in page
    assert 'href="#m1-tuning"' in page


def test_a_page_without_tuning_has_no_such_section() -> None:
    assert "m1-tuning" not in html.render([samples.complete()])
