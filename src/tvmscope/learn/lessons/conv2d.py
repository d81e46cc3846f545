"""The whole convolution: from six plain loops to near the roof, every step measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Parameter, Params, Step
from tvmscope.learn.workloads import BLOCK, CHANNELS, CONV2D, CONV2D_BLOCKED
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def best_columns(target: Target) -> int:
    """Return the columns of a tile of two rows: the sums of 16 channels fill most registers."""
    return {512: 7, 256: 2}.get(target.vector_bits, 2)


def along_columns(sch: Schedule, p: Params) -> None:
    o, y, x, ic, kh, kw = sch.get_loops("C")
    sch.reorder(o, y, ic, kh, kw, x)


def threads_nchw(sch: Schedule, p: Params) -> None:
    o, y, *_ = sch.get_loops("C")
    sch.parallel(sch.fuse(o, y))


def channels_inside(sch: Schedule, p: Params) -> None:
    o, y, x, c, ic, kh, kw, ii = sch.get_loops("C")
    sch.reorder(o, y, x, ic, kh, kw, ii, c)
    sch.vectorize(c)


def tile(sch: Schedule, p: Params) -> None:
    o, y, x, ic, kh, kw, ii, c = sch.get_loops("C")
    y_o, y_i = sch.split(y, factors=[None, p["rows"]])
    x_o, x_i = sch.split(x, factors=[None, p["columns"]])
    sch.reorder(o, y_o, x_o, ic, kh, kw, ii, y_i, x_i, c)
    sch.unroll(y_i)
    sch.unroll(x_i)


def own_buffer(sch: Schedule, p: Params) -> None:
    out = sch.cache_write("C", 0, "local")
    _o, _y_o, x_o, *_ = sch.get_loops("C")
    sch.reverse_compute_at(out, x_o)
    sch.vectorize(sch.get_loops(out)[-1])


def threads(sch: Schedule, p: Params) -> None:
    o, y_o, *_ = sch.get_loops("C")
    sch.parallel(sch.fuse(o, y_o))


def zeros_first(sch: Schedule, p: Params) -> None:
    _task, _x_o, ic, *_ = sch.get_loops("C")
    sch.decompose_reduction("C", ic)


def unroll_sum(sch: Schedule, p: Params) -> None:
    _task, _x_o, _ic, _kh, _kw, ii, *_ = sch.get_loops("C_update")
    _ii_o, ii_i = sch.split(ii, factors=[None, p["unroll"]])
    sch.unroll(ii_i)


LESSON = Lesson(
    name="conv2d",
    title=msg("The whole convolution: from plain loops to the roof"),
    idea=msg(
        "A 3x3 convolution has six loops and two ways to be slow: vectors that must be collected, "
        "and sums that go to memory and back. The layout cures the first, the tile in registers "
        "the second; the cores come last.\n\n"
        "Each step shows its share of the measured roof. A model's own convolutions take this road "
        "when tvmscope compiles them, with numbers that follow from their shapes."
    ),
    workload=CONV2D,
    size=28,
    smallest=28,
    parameters=(
        Parameter(name="rows", words=msg("rows of pixels in a tile"), default=1),
        Parameter(name="columns", words=msg("columns of pixels in a tile"), default=4),
        Parameter(name="unroll", words=msg("input channels written out"), default=4),
    ),
    steps=(
        Step(name="plain", title=msg("NCHW, as TVM writes it")),
        Step(
            name="along-columns",
            title=msg("NCHW, the columns innermost"),
            note=msg("Neighbouring pixels in one vector; the sums go through memory."),
            apply=along_columns,
        ),
        Step(
            name="threads-nchw",
            title=msg("NCHW, channels and rows in parallel"),
            note=msg("More cores for a slow loop: where most people stop."),
            apply=threads_nchw,
        ),
        Step(
            name="blocked",
            title=msg("NCHW16c, as TVM writes it"),
            note=msg("Another layout, and one core again."),
            workload=CONV2D_BLOCKED,
        ),
        Step(
            name="channels-inside",
            title=msg("vectorize the block of channels"),
            apply=channels_inside,
        ),
        Step(
            name="tile",
            title=msg("Tile: several pixels share each load of the weights"),
            apply=tile,
        ),
        Step(
            name="own-buffer",
            title=msg("cache_write: the sums in a buffer of the tile's size"),
            apply=own_buffer,
        ),
        Step(name="threads", title=msg("parallel: tiles for all cores"), apply=threads),
        Step(
            name="zeros-first",
            title=msg("decompose_reduction: the zeros in front"),
            apply=zeros_first,
        ),
        Step(
            name="unroll-sum",
            title=msg("The sum over input channels unrolled"),
            apply=unroll_sum,
        ),
        Step(
            name="all-registers",
            title=msg("A tile of two rows that uses most registers"),
            note=msg("The same primitives with other numbers."),
            params={"rows": 2, "columns": best_columns},
        ),
    ),
    exercise=exercises.number(
        msg(
            "How many vector registers hold the sums of a tile of 2 rows x 2 columns of pixels, 16 "
            "channels each, on this machine?"
        ),
        lambda study: 4 * max(1, BLOCK // study.lanes),
        lambda study, right: msg(
            "Yes: four pixels of 16 channels, {lanes} numbers in a register.", lanes=study.lanes
        ),
    ),
    closing=msg(
        "All {channels} channels, 9 weights each: Winograd (tvmscope learn winograd) needs fewer "
        "multiplications than that.",
        channels=CHANNELS,
    ),
)
