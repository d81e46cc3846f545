"""cache_read and cache_write: a copy of data in faster memory, or in a better order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def tile(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, p["rows"]])
    j_o, j_i = sch.split(j, factors=[None, p["factor"]])
    sch.reorder(j_o, i_o, k, i_i, j_i)
    sch.unroll(i_i)
    sch.vectorize(j_i)


def write(sch: Schedule, p: Params) -> None:
    out = sch.cache_write("C", 0, "local")
    _j_o, i_o, *_ = sch.get_loops("C")
    sch.reverse_compute_at(out, i_o)
    row, column = sch.get_loops(out)[-2:]
    sch.unroll(row)
    sch.vectorize(column)


def read(sch: Schedule, p: Params) -> None:
    panel = sch.cache_read("C", 1, "global")
    j_o, *_ = sch.get_loops("C")
    sch.compute_at(panel, j_o)
    sch.vectorize(sch.get_loops(panel)[-1])


LESSON = Lesson(
    name="cache",
    title=msg("cache_read and cache_write: a copy in a better place"),
    idea=msg(
        "cache_write(C, 'local') makes a small buffer that the sums are kept in, and a copy to C "
        "when they are finished. A buffer of a fixed tile's size, with its loops unrolled, can "
        "live in registers; a part of the whole C often cannot.\n\n"
        "cache_read(B) makes a copy of what is read. The copy costs time; it is worth it where it "
        "is read many times, or lies in a better order: here the columns of one panel of B become "
        "neighbours instead of lying a row apart."
    ),
    workload=MATMUL,
    size=384,
    smallest=32,
    parameters=(
        Parameter(name="rows", words=msg("rows of a tile"), default=4),
        Parameter(name="factor", words=msg("columns of a tile"), default=lanes),
    ),
    steps=(
        Step(name="tile", title=msg("A tile that adds to C itself"), apply=tile),
        Step(name="write", title=msg("cache_write: sums in a buffer of their own"), apply=write),
        Step(
            name="read",
            title=msg("cache_read: a copy of each panel of B, where it is used"),
            note=msg("compute_at says when: once for each panel, before all rows use it."),
            apply=read,
        ),
    ),
    exercise=exercises.number(
        msg(
            "How many bytes does the copy of one panel of B have: all its rows, and the columns of "
            "a tile?"
        ),
        lambda study: 4 * study.size * study.params["factor"],
        lambda study, right: msg(
            "Yes: {rows} rows of {columns} numbers; it is read once for each of the {times} tiles "
            "below each other.",
            rows=study.size,
            columns=study.params["factor"],
            times=study.size // study.params["rows"],
        ),
    ),
    closing=msg("Next: tvmscope learn compute-at"),
)
