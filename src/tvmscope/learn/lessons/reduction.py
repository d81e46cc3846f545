"""Reductions: decompose_reduction moves the zeros out of the loop, rfactor makes several sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import ROW_SUMS
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def decompose(sch: Schedule, p: Params) -> None:
    _i, k = sch.get_loops("S")
    sch.decompose_reduction("S", k)


def partial_sums(sch: Schedule, p: Params) -> None:
    _i, k = sch.get_loops("S")
    _k_o, k_i = sch.split(k, factors=[None, p["sums"]])
    partial = sch.rfactor(k_i, factor_axis=1)
    _i, k_o, lane = sch.get_loops(partial)
    sch.vectorize(lane)
    sch.decompose_reduction(partial, k_o)


LESSON = Lesson(
    name="reduction",
    title=msg("decompose_reduction and rfactor: sums"),
    idea=msg(
        "A sum has two parts: set it to zero, then add. TVM writes both inside the loop, with a "
        "question at each turn whether it is the first; decompose_reduction takes the zero out in "
        "front.\n\n"
        "A sum is also a chain: each addition waits for the one before, some four cycles, while "
        "the processor could start two every cycle. And LLVM must not break the chain up, because "
        "floating-point numbers round differently in another order. rfactor says that you accept "
        "it: it makes many partial sums, which can fill vectors, and adds them up at the end."
    ),
    workload=ROW_SUMS,
    size=256,
    smallest=16,
    parameters=(Parameter(name="sums", words=msg("partial sums of a row"), default=lanes),),
    steps=(
        Step(name="plain", title=msg("One sum, its zero inside the loop")),
        Step(
            name="decompose",
            title=msg("decompose_reduction: the zero in front"),
            apply=decompose,
        ),
        Step(
            name="partial-sums",
            title=msg("rfactor: as many sums as a register holds"),
            apply=partial_sums,
            anew=True,
        ),
        Step(
            name="more",
            title=msg("rfactor: eight registers of sums"),
            params={"sums": lambda target: 8 * lanes(target)},
        ),
    ),
    exercise=exercises.number(
        msg(
            "A row has 64 x size numbers. With as many partial sums as a register holds, how many "
            "additions follow each other in one of them, the final adding up not counted?"
        ),
        lambda study: 64 * study.size // study.lanes,
        lambda study, right: msg(
            "Yes: {row} numbers in {lanes} sums; that is how much shorter the chain is.",
            row=64 * study.size,
            lanes=study.lanes,
        ),
    ),
    closing=msg("Next: tvmscope learn tensorize"),
)
