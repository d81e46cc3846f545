"""What a schedule is: another program for the same result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Params, Step
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def another_order(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)


def worse_order(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(j, k, i)


def illegal(sch: Schedule, p: Params) -> None:
    _i, _j, k = sch.get_loops("C")
    sch.parallel(k)


LESSON = Lesson(
    name="schedule",
    title=msg("What a schedule is"),
    idea=msg(
        "A TIR function says what is computed: C[i, j] is a sum of products. A schedule says how: "
        "in which order the loops run, which data is kept where, which instructions are used. It "
        "is a list of primitives (split, reorder, vectorize, ...), and each one is checked: what "
        "would change the result is refused.\n\n"
        "So a schedule can be wrong in one way only: it can be slow. Below are three programs for "
        "one computation, and a fourth that is refused."
    ),
    workload=MATMUL,
    size=384,
    smallest=32,
    steps=(
        Step(name="plain", title=msg("As TVM writes it: for i, for j, for k")),
        Step(
            name="another-order",
            title=msg("Another order: for i, for k, for j"),
            note=msg("The same multiplications and additions, in another order."),
            apply=another_order,
        ),
        Step(
            name="worse-order",
            title=msg("One more: for j, for k, for i"),
            apply=worse_order,
            anew=True,
        ),
        Step(
            name="illegal",
            title=msg("What is refused: the sum in parallel"),
            note=msg(
                "All turns of k add to the same element. In parallel they would overwrite each "
                "other; TIR says so before anything runs."
            ),
            apply=illegal,
            anew=True,
            refused=True,
        ),
    ),
    exercise=exercises.choice(
        msg(
            "Which of these can a schedule do? (a) compute in float16 instead of float32, (b) "
            "compute rows in another order, (c) leave out every second row."
        ),
        {
            "a": msg("No: another type gives another result. That is a pass, not a schedule."),
            "b": msg("Yes: every element is computed as before, only at another time."),
            "c": msg("No: that changes the result, and no primitive can."),
        },
        "b",
    ),
    closing=msg("Next: tvmscope learn split"),
)
