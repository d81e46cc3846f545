"""Reorder: the innermost loop determines the order of memory accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Params, Step
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def ikj(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)


def kij(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)


def jki(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(j, k, i)


LESSON = Lesson(
    name="reorder",
    title=msg("reorder: which loop is innermost"),
    idea=msg(
        "Memory comes in cache lines of 64 bytes: 16 neighbouring numbers. A loop that walks along "
        "a row uses all of them; one that walks down a column fetches a line for each number. "
        "reorder(i, k, j) changes nothing but which loop is innermost, and with it the step in "
        "memory from one turn to the next.\n\n"
        "Three operands, three loops: A[i, k], B[k, j], C[i, j]. Find the loop that moves none of "
        "them by more than one element."
    ),
    workload=MATMUL,
    size=384,
    smallest=32,
    steps=(
        Step(name="ijk", title=msg("k innermost: A along a row, B down a column")),
        Step(name="ikj", title=msg("j innermost: B and C along a row, A stands still"), apply=ikj),
        Step(
            name="kij",
            title=msg("k outermost: all of C once for each k"),
            note=msg("The innermost loop is the same; what lies around it is not."),
            apply=kij,
            anew=True,
        ),
        Step(
            name="jki",
            title=msg("i innermost: A and C down a column"),
            apply=jki,
            anew=True,
        ),
    ),
    exercise=exercises.number(
        msg(
            "With i innermost, by how many bytes does the innermost loop move in A from one turn "
            "to the next, at this size?"
        ),
        lambda study: study.size * 4,
        lambda study, right: msg(
            "Yes: a whole row of {size} numbers of 4 bytes lies between A[i, k] and A[i+1, k].",
            size=study.size,
        ),
    ),
    closing=msg("Next: tvmscope learn fuse"),
)
