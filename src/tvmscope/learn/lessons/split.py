"""Split: one loop becomes several; by itself it changes nothing, but everything else needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.facts import Study
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import Text, msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def by_factor(sch: Schedule, p: Params) -> None:
    _i, j, _k = sch.get_loops("C")
    sch.split(j, factors=[None, p["factor"]])


def by_width(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)


def by_parts(sch: Schedule, p: Params) -> None:
    i, *_ = sch.get_loops("C")
    part, _within = sch.split(i, factors=[p["parts"], None])
    sch.parallel(part)


def odd(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["odd"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)


def _why(study: Study, right: int) -> Text:
    return msg(
        "Yes: {bits} bits / 32 bits = {right}. One load, one multiply-add and one store work on "
        "exactly one register.",
        bits=study.target.vector_bits,
        right=right,
    )


LESSON = Lesson(
    name="split",
    title=msg("split: one loop becomes two"),
    idea=msg(
        "split(j, factors=[None, 16]) replaces one loop by two: the outer one counts blocks of 16, "
        "the inner one walks inside a block. The order of the work stays the same, so a split "
        "alone can change nothing. It is what makes the other primitives possible: a part that "
        "fits a cache (tile), a part that fits a register (vectorize), a part for each thread "
        "(parallel)."
    ),
    workload=MATMUL,
    size=384,
    smallest=32,
    parameters=(
        Parameter(name="factor", words=msg("turns of the inner loop over columns"), default=lanes),
        Parameter(
            name="parts",
            words=msg("parts of the loop over rows, one for each thread"),
            default=lambda target: target.cores,
        ),
        Parameter(name="odd", words=msg("a factor that need not divide the loop"), default=25),
    ),
    steps=(
        Step(name="plain", title=msg("As TVM writes it: for i, for j, for k")),
        Step(
            name="by-factor",
            title=msg("Split j by a factor"),
            note=msg("None is worked out: the length of j over the factor, rounded up."),
            apply=by_factor,
        ),
        Step(
            name="by-width",
            title=msg("The same split, with the inner part as one register"),
            note=msg(
                "Now that there is a loop of exactly one register, it can go inside k and become "
                "vector instructions."
            ),
            apply=by_width,
            anew=True,
        ),
        Step(
            name="by-parts",
            title=msg("Split i by parts: one for each thread"),
            note=msg("Here the outer number is given and the inner one is worked out."),
            apply=by_parts,
        ),
        Step(
            name="odd",
            against="by-width",
            title=msg("A factor that does not divide the loop"),
            note=msg("TVM rounds up and guards what lies beyond the end with a condition."),
            apply=odd,
            anew=True,
        ),
    ),
    exercise=exercises.number(
        msg(
            "Which factor makes the inner loop exactly as long as one vector register of this "
            "machine, in float32 numbers?"
        ),
        lambda study: study.lanes,
        _why,
    ),
    closing=msg("Next: tvmscope learn reorder"),
)
