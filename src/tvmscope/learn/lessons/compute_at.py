"""compute_at: where a stage that feeds another is computed, and what fusion is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step
from tvmscope.learn.workloads import BLUR
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def inline(sch: Schedule, p: Params) -> None:
    sch.compute_inline("B")


def at_row(sch: Schedule, p: Params) -> None:
    i, _j = sch.get_loops("C")
    sch.compute_at("B", i)


def at_rows(sch: Schedule, p: Params) -> None:
    i, _j = sch.get_loops("C")
    i_o, _i_i = sch.split(i, factors=[None, p["rows"]])
    sch.compute_at("B", i_o)


LESSON = Lesson(
    name="compute-at",
    title=msg("compute_at: stages beside each other, or inside each other"),
    idea=msg(
        "A blur in two stages: B is the mean of three numbers of a row, C that of three rows of B. "
        "Computed one after the other, all of B goes to memory and comes back. Computed inside "
        "C's loops, B stays in a cache, but the rows that several C need are computed again.\n\n"
        "compute_at(B, loop) chooses the place: near (little memory, much work again) or far "
        "(much memory, no work twice). This is what fusion of operators is about."
    ),
    workload=BLUR,
    size=1536,
    smallest=64,
    parameters=(
        Parameter(name="rows", words=msg("rows of C that share their rows of B"), default=16),
    ),
    steps=(
        Step(name="apart", title=msg("All of B, then all of C")),
        Step(
            name="inline",
            title=msg("compute_inline: B nowhere, its formula inside C's"),
            note=msg("No memory at all, three times the work."),
            apply=inline,
        ),
        Step(
            name="at-row",
            against="apart",
            title=msg("compute_at a row: three rows of B for each row of C"),
            apply=at_row,
            anew=True,
        ),
        Step(
            name="at-rows",
            against="apart",
            title=msg("compute_at a strip of rows"),
            note=msg("Two rows too many for each strip, however tall it is."),
            apply=at_rows,
            anew=True,
        ),
    ),
    exercise=exercises.number(
        msg("How many rows of B are computed for a strip of the lesson's rows (--set rows)?"),
        lambda study: study.params["rows"] + 2,
        lambda study, right: msg(
            "Yes: {rows} rows of C need {right} rows of B; {share:.0%} of the work is done twice.",
            rows=study.params["rows"],
            right=right,
            share=2 / right,
        ),
    ),
    closing=msg("Next: tvmscope learn layout"),
)
