"""The whole matrix product: from three plain loops to near the roof, every step measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.facts import Built, Study
from tvmscope.learn.lesson import Checked, Lesson, Parameter, Params, Step, lanes
from tvmscope.learn.workloads import MATMUL
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def registers(target: Target) -> int:
    """Return the number of the instruction set's vector registers."""
    return 32 if target.vector_bits == 512 or target.arch.startswith(("cortex", "neo")) else 16


def best_rows(target: Target) -> int:
    """Return the rows of a tile two registers wide; two columns and a broadcast also need room."""
    return 12 if registers(target) == 32 else 6


def reorder(sch: Schedule, p: Params) -> None:
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)


def columns(sch: Schedule, p: Params) -> None:
    i, k, j = sch.get_loops("C")
    j_o, j_i = sch.split(j, factors=[None, p["columns"]])
    sch.reorder(i, j_o, k, j_i)
    sch.vectorize(j_i)


def rows(sch: Schedule, p: Params) -> None:
    i, j_o, k, j_i = sch.get_loops("C")
    i_o, i_i = sch.split(i, factors=[None, p["rows"]])
    sch.reorder(i_o, j_o, k, i_i, j_i)


def unroll_rows(sch: Schedule, p: Params) -> None:
    _i_o, _j_o, _k, i_i, _j_i = sch.get_loops("C")
    sch.unroll(i_i)


def own_buffer(sch: Schedule, p: Params) -> None:
    out = sch.cache_write("C", 0, "local")
    _i_o, j_o, *_ = sch.get_loops("C")
    sch.reverse_compute_at(out, j_o)
    row, column = sch.get_loops(out)[-2:]
    sch.unroll(row)
    sch.vectorize(column)


def pack(sch: Schedule, p: Params) -> None:
    width = p["columns"]
    packed = sch.cache_read("C", 1, "global")
    sch.transform_layout("C", ("read", 1), lambda k, j: (j // width, k, j % width))
    k, j = sch.get_loops(packed)
    panel, lane = sch.split(j, factors=[None, width])
    sch.reorder(panel, k, lane)
    sch.vectorize(lane)
    sch.parallel(panel)


def threads(sch: Schedule, p: Params) -> None:
    i_o, j_o, *_ = sch.get_loops("C")
    sch.parallel(sch.fuse(i_o, j_o))


def last(sch: Schedule, p: Params) -> None:
    _task, k, *_ = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    _task, k, *_ = sch.get_loops("C_update")
    _k_o, k_i = sch.split(k, factors=[None, p["unroll"]])
    sch.unroll(k_i)


def _judge(built: Built, chosen: dict[str, int], study: Study) -> Checked:
    hot = built.hot
    if hot is None:
        return Checked(right=False, words=msg("No arithmetic was found in the machine code."))
    if hot.spills:
        words = msg(
            "{count} values a turn go through the stack: the tile is too large.", count=hot.spills
        )
        return Checked(right=False, words=words)
    if hot.sums < 8:
        words = msg("Only {sums} sums are under way at once; eight are wanted.", sums=hot.sums)
        return Checked(right=False, words=words)
    words = msg(
        "{sums} sums in registers, nothing on the stack: each load feeds {ratio:.1f} arithmetic "
        "instructions.",
        sums=hot.sums,
        ratio=hot.math / max(hot.loads, 1),
    )
    return Checked(right=True, words=words)


LESSON = Lesson(
    name="matmul",
    title=msg("The whole matrix product: from plain loops to the roof"),
    idea=msg(
        "Every step of the other lessons, one after the other, on one computation. Three plain "
        "loops reach about a hundredth of what the machine can do. Nothing below changes what is "
        "computed: only the order of the loops, the place of the data and the instructions.\n\n"
        "The roof is measured: multiply-adds that wait for nothing. Watch each step's share of "
        "it, and which resource the words name: first the cache, then the vector registers, then "
        "the sums that stay in them, at last the cores."
    ),
    workload=MATMUL,
    size=384,
    smallest=96,
    parameters=(
        Parameter(name="rows", words=msg("rows of the tile in registers"), default=4),
        Parameter(name="columns", words=msg("columns of the tile"), default=lanes),
        Parameter(name="unroll", words=msg("steps of the sum written out"), default=4),
    ),
    steps=(
        Step(name="plain", title=msg("As TVM writes it")),
        Step(
            name="reorder",
            title=msg("Reorder: the columns innermost"),
            note=msg("A row of B and a row of C are walked along; A's value stays."),
            apply=reorder,
        ),
        Step(
            name="columns",
            title=msg("Split and vectorize: a block of columns"),
            note=msg("The sums of one block can stay in a register while k runs."),
            apply=columns,
        ),
        Step(
            name="rows",
            title=msg("Tile: several rows share each load of B"),
            apply=rows,
        ),
        Step(
            name="unroll-rows",
            title=msg("Unroll the rows: every sum gets a register of its own"),
            apply=unroll_rows,
        ),
        Step(
            name="own-buffer",
            title=msg("cache_write: the sums live in a buffer of the tile's size"),
            note=msg("C itself is written once, when a tile is finished."),
            apply=own_buffer,
        ),
        Step(
            name="pack",
            title=msg("cache_read and layout: B in panels"),
            note=msg(
                "A copy of B in the order in which the tiles read it; the copy is part of the time."
            ),
            apply=pack,
        ),
        Step(
            name="threads",
            title=msg("Parallel: tiles for all cores"),
            apply=threads,
        ),
        Step(
            name="last",
            title=msg("decompose_reduction, and the sum unrolled"),
            note=msg("The zeros are set before the loop, not by a question inside it."),
            apply=last,
        ),
        Step(
            name="all-registers",
            title=msg("A tile that uses all registers"),
            note=msg("The same primitives with other numbers."),
            params={"rows": best_rows, "columns": lambda target: 2 * lanes(target)},
        ),
    ),
    exercise=exercises.parameters(
        msg(
            "Choose rows and columns for the last step so that at least eight sums are under way "
            "at once and nothing goes through the stack (answer like rows=2,columns=16)."
        ),
        "last",
        lambda study: {"rows": best_rows(study.target), "columns": 2 * study.lanes},
        _judge,
    ),
    closing=msg("Next: tvmscope learn conv2d"),
)
