"""Fuse: two loops become one, so that there is enough work to distribute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import SCALED
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def planes(sch: Schedule, p: Params) -> None:
    c, _i, _j = sch.get_loops("C")
    sch.parallel(c)


def rows(sch: Schedule, p: Params) -> None:
    c, i, _j = sch.get_loops("C")
    sch.parallel(sch.fuse(c, i))


def everything(sch: Schedule, p: Params) -> None:
    c, i, j = sch.get_loops("C")
    whole = sch.fuse(c, i, j)
    part, _inner, lane = sch.split(whole, factors=[p["parts"], None, p["factor"]])
    sch.vectorize(lane)
    sch.parallel(part)


LESSON = Lesson(
    name="fuse",
    title=msg("fuse: two loops become one"),
    idea=msg(
        "fuse(c, i) is the opposite of split: one loop that makes all turns of both. It costs a "
        "division to get the two indices back, unless the compiler finds a way around it.\n\n"
        "Its use is to have enough turns. Three planes on two cores: one core gets two, the other "
        "one waits. Fused with the rows there are hundreds of turns, and both get half."
    ),
    workload=SCALED,
    size=512,
    smallest=32,
    parameters=(
        Parameter(
            name="parts",
            words=msg("parts that the fused loop is handed out in"),
            default=lambda target: 4 * target.cores,
        ),
        Parameter(name="factor", words=msg("numbers of one vector"), default=lanes),
    ),
    steps=(
        Step(name="plain", title=msg("As TVM writes it: planes, rows, columns")),
        Step(
            name="planes",
            title=msg("The planes in parallel: three turns to hand out"),
            apply=planes,
        ),
        Step(
            name="rows",
            title=msg("Planes and rows fused, then in parallel"),
            apply=rows,
            anew=True,
        ),
        Step(
            name="everything",
            title=msg("All three fused, then split by what is wanted"),
            note=msg(
                "Fuse everything, then split by parts and by vector width: no shape is awkward."
            ),
            apply=everything,
            anew=True,
        ),
    ),
    exercise=exercises.number(
        msg("How many turns does the loop make that planes and rows are fused into?"),
        lambda study: 3 * study.size,
        lambda study, right: msg("Yes: 3 planes times {rows} rows.", rows=study.size),
    ),
    closing=msg("Next: tvmscope learn tile"),
)
