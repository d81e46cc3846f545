"""Unroll: write a loop out, so that its values can stay in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def tile(sch: Schedule, p: Params) -> None:
    sums = sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, p["rows"]])
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i_o, j_o, k, i_i, j_i)
    sch.vectorize(j_i)
    sch.reverse_compute_at(sums, j_o)
    sch.vectorize(sch.get_loops(sums)[-1])
    sch.decompose_reduction("C", k)


def unrolled(sch: Schedule, p: Params) -> None:
    *_, i_i, _j_i = sch.get_loops("C_update")
    sch.unroll(i_i)


LESSON = Lesson(
    name="unroll",
    title=msg("unroll: a loop written out"),
    idea=msg(
        "A register has no address: registers cannot be walked through by a loop. An array of sums "
        "can live in registers only if the loop over it is written out, turn by turn. unroll does "
        "that. It also saves the counting and jumping of short loops.\n\n"
        "LLVM unrolls short loops by itself and often guesses well. Written out too far, a tile "
        "needs more registers than there are, and values go through the stack."
    ),
    workload=MATMUL,
    size=384,
    smallest=96,
    parameters=(
        Parameter(name="rows", words=msg("rows of a tile"), default=6),
        Parameter(name="factor", words=msg("columns of a tile"), default=lanes),
    ),
    steps=(
        Step(name="tile", title=msg("A tile of rows x one register, as a loop"), apply=tile),
        Step(name="unrolled", title=msg("The rows unrolled"), apply=unrolled),
        Step(
            name="two",
            title=msg("A tile of only two rows, unrolled"),
            note=msg("Two sums: each multiply-add waits for the one before the last."),
            params={"rows": 2},
        ),
        Step(
            name="too-many",
            against="unrolled",
            title=msg("A tile of 48 rows, unrolled"),
            note=msg("More sums than there are registers."),
            params={"rows": 48},
        ),
    ),
    exercise=exercises.number(
        msg(
            "A tile of 6 rows x twice the numbers of a vector register: how many registers hold "
            "its sums?"
        ),
        lambda study: 12,
        lambda study, right: msg("Yes: two for each of the six rows."),
    ),
    closing=msg("Next: tvmscope learn cache"),
)
