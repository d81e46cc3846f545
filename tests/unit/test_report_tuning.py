"""Tuning in reports: the plan, the summary, and the page's figure."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console, RenderableType

from support import samples
from tvmscope.core.tuning import Candidate, TunedTask
from tvmscope.report.formats import html, markdown
from tvmscope.report.sections import choice, tuning
from tvmscope.report.sections.schedule import in_words
from tvmscope.report.terminal import tuning_table


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
    assert "GFLOP/s are based on the operations of the untuned kernel" in shown
    assert "\x1b" not in shown


def test_the_page_draws_the_best_speed_over_the_search() -> None:
    session = samples.tuned()
    (figure,) = tuning.figures(session, "m1")
    (line,) = figure["lines"]
    assert line["x"] == [1.0, 60.0]
    assert line["y"] == [0.01 / 0.009, 0.01 / 0.008]
    page = html.render([session])
    assert 'id="m1-tuning-figure"' in page
    assert 'href="#m1-tuning"' in page
    assert "GFLOP/s are based on the operations of the untuned kernel" in page


def test_a_page_without_tuning_has_no_such_section() -> None:
    assert "m1-tuning" not in html.render([samples.complete()])


def test_a_choice_is_told_in_words_beside_the_rules_own() -> None:
    shown = text(tuning_table.summary(samples.tuned()))
    assert "4 columns of the result are kept in registers" in shown
    assert "the sums are unrolled by 8 steps" in shown
    assert "(default of the rule: 4)" in shown


def test_a_part_shows_its_factor_or_why_there_is_none() -> None:
    for shown in (
        text(tuning_table.summary(samples.tuned())),
        html.render([samples.tuned()]),
        markdown.render([samples.tuned()]).replace("\\", ""),
    ):
        assert "6.50x (6.00-7.00)" in shown
        assert "default of the rule: 4" in shown
        assert "unknown: building: no such row" in shown
        order = [shown.index(w) for w in ("6.50x (", "1.10x (", "unknown: building")]
        assert order == sorted(order)


def test_a_chosen_trace_is_told_step_by_step() -> None:
    task = TunedTask(
        workload="matmul", kernel="matmul", rule="matmul", calls=1, total_s=1.0, share=1.0,
        least_s=0.0, flops=None, candidates=1,
        chosen=Candidate(params={"{odd}": "{name}"}, trace="[]"),
        steps=("l1, l2 = sch.get_loops(block=b0)", "sch.parallel(loop=l1)"),
    )  # fmt: skip
    first, second = choice.sentences(task)
    assert first == "{odd} is {name}"
    assert "in parallel on all threads" in second
    assert choice.sentences(samples.tuned().tuning[1]) == []


def test_marks_that_a_search_leaves_for_itself_are_not_told() -> None:
    told = in_words(
        (
            'b0 = sch.get_sblock(name="y", func_name="main")',
            "l1, l2 = sch.get_loops(block=b0)",
            'sch.annotate(block_or_loop=b0, ann_key="meta_schedule.tiling_structure", ann_val="S")',
            "sch.parallel(loop=l1)",
            'sch.unannotate(block_or_loop=b0, ann_key="meta_schedule.tiling_structure")',
        )
    )
    assert len(told) == 1
