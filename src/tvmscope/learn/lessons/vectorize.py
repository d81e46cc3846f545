"""Vectorize: one instruction for many numbers that are adjacent in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.facts import Built, Study
from tvmscope.learn.lesson import Checked, Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def open_to_llvm(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)


def columns(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)


def rows(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, p["factor"]])
    sch.reorder(i_o, j, k, i_i)
    sch.vectorize(i_i)


def _judge(built: Built, chosen: dict[str, int], study: Study) -> Checked:
    hot = built.hot
    width = hot.vector_bits if hot else 0
    if hot is None or width < study.target.vector_bits:
        words = msg(
            "The arithmetic uses {bits} bits of {all}.", bits=width, all=study.target.vector_bits
        )
        return Checked(right=False, words=words)
    if chosen["factor"] < 4 * study.lanes:
        words = msg("That is {count} register(s).", count=chosen["factor"] // study.lanes)
        return Checked(right=False, words=words)
    return Checked(
        right=True,
        words=msg(
            "Yes: {factor} numbers are {count} registers, all of {bits} bits.",
            factor=chosen["factor"],
            count=chosen["factor"] // study.lanes,
            bits=width,
        ),
    )


LESSON = Lesson(
    name="vectorize",
    title=msg("vectorize: many numbers in one instruction"),
    idea=msg(
        "A vector register holds several numbers, and one instruction works on all of them. "
        "vectorize turns an inner loop of that length into such instructions. The compiler below "
        "TVM, LLVM, does so by itself where it may; it may not reorder a sum of floating-point "
        "numbers, because that would round differently.\n\n"
        "A vector is loaded in one go only where its numbers lie beside each other. Along the "
        "wrong axis each number is fetched by itself."
    ),
    workload=MATMUL,
    size=384,
    smallest=64,
    parameters=(Parameter(name="factor", words=msg("numbers of one vector"), default=lanes),),
    steps=(
        Step(name="plain", title=msg("The sum innermost: one number at a time")),
        Step(
            name="open-to-llvm",
            title=msg("The columns innermost: LLVM vectorises by itself"),
            apply=open_to_llvm,
        ),
        Step(
            name="columns",
            title=msg("vectorize over columns, one register wide"),
            apply=columns,
            anew=True,
        ),
        Step(
            name="wide",
            title=msg("The same, four registers wide"),
            note=msg("TVM's vector may be longer than a register; LLVM uses several."),
            params={"factor": lambda target: 4 * lanes(target)},
        ),
        Step(
            name="rows",
            against="columns",
            title=msg("vectorize over rows: the wrong axis"),
            apply=rows,
            anew=True,
        ),
    ),
    exercise=exercises.parameters(
        msg(
            "Which factor makes the vector over columns four registers wide on this machine, each "
            "register full? (answer like factor=8)"
        ),
        "columns",
        lambda study: {"factor": 4 * study.lanes},
        _judge,
    ),
    closing=msg("Next: tvmscope learn parallel"),
)
