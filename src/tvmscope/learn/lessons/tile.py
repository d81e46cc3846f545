"""Tile: finish the work on a part of the data that fits a cache before the next part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step
from tvmscope.learn.workloads import TRANSPOSE
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def tiled(sch: Schedule, p: Params) -> None:
    i, j = sch.get_loops("B")
    i_o, i_i = sch.split(i, factors=[None, p["tile"]])
    j_o, j_i = sch.split(j, factors=[None, p["tile"]])
    sch.reorder(i_o, j_o, i_i, j_i)


LESSON = Lesson(
    name="tile",
    title=msg("tile: parts that fit a cache"),
    idea=msg(
        "To transpose a matrix, one side is walked along rows and the other down columns. Down a "
        "column every number lies in another cache line; by the time the next column wants its "
        "neighbour, the line is gone if a column has more lines than the cache.\n\n"
        "A tile turns the order around: take a square that fits the cache and finish it before "
        "going on. It is a split of each loop and one reorder: the outer parts outside, the inner "
        "parts inside. Too small a tile uses part of each line; too large a one is no tile."
    ),
    workload=TRANSPOSE,
    size=1552,
    smallest=1552,
    parameters=(Parameter(name="tile", words=msg("rows and columns of a tile"), default=8),),
    steps=(
        Step(name="plain", title=msg("As TVM writes it: B along rows, A down columns")),
        Step(name="tiled", title=msg("Tiled"), apply=tiled),
        Step(name="small", title=msg("The same with a tile of 4"), params={"tile": 4}),
        Step(
            name="large",
            against="tiled",
            title=msg("The same with a tile of 776"),
            note=msg("A column of it has more lines than a first-level cache of 32 KiB."),
            params={"tile": 776},
        ),
    ),
    exercise=exercises.number(
        msg("How many bytes of A does a tile of the lesson's own size (--set tile) hold?"),
        lambda study: 4 * study.params["tile"] ** 2,
        lambda study, right: msg(
            "Yes: {tile} x {tile} numbers of 4 bytes; the first-level cache of this machine has "
            "{cache} bytes.",
            tile=study.params["tile"],
            cache=study.caches[0].size_bytes,
        ),
    ),
    closing=msg("Next: tvmscope learn vectorize"),
)
