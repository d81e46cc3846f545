"""Layout: NCHW against NCHWc, or which elements are neighbours in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.learn import exercises
from tvmscope.learn.lesson import Lesson, Params, Step
from tvmscope.learn.workloads import CONV2D, CONV2D_BLOCKED
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm.s_tir import Schedule


def along_columns(sch: Schedule, p: Params) -> None:
    o, y, x, ic, kh, kw = sch.get_loops("C")
    sch.reorder(o, y, ic, kh, kw, x)


def along_channels(sch: Schedule, p: Params) -> None:
    o, y, x, ic, kh, kw = sch.get_loops("C")
    o_o, o_i = sch.split(o, factors=[None, 16])
    sch.reorder(o_o, y, x, ic, kh, kw, o_i)
    sch.vectorize(o_i)


def blocked(sch: Schedule, p: Params) -> None:
    o, y, x, c, ic, kh, kw, ii = sch.get_loops("C")
    sch.reorder(o, y, x, ic, kh, kw, ii, c)
    sch.vectorize(c)


LESSON = Lesson(
    name="layout",
    title=msg("Layout: where the neighbours lie"),
    idea=msg(
        "In NCHW each channel is a plane, so that two channels of one pixel lie a whole picture "
        "apart. A convolution sums over channels and produces channels: along that axis vectors "
        "would be collected number by number. NCHW16c puts 16 channels of a pixel beside each "
        "other: one load brings them all, and the axis is always a multiple of the vector, however "
        "odd the picture's width is.\n\n"
        "No primitive does this: layouts belong to the graph. Weights are packed once, when a "
        "model is compiled; between convolutions the data can stay in blocks."
    ),
    workload=CONV2D,
    size=28,
    smallest=8,
    steps=(
        Step(name="nchw", title=msg("NCHW, as TVM writes it")),
        Step(
            name="along-columns",
            title=msg("NCHW, vectors along a row of the picture"),
            note=msg("LLVM can vectorise the innermost loop: neighbouring pixels."),
            apply=along_columns,
        ),
        Step(
            name="along-channels",
            title=msg("NCHW, vectors along the output channels"),
            note=msg("Neighbouring channels lie a whole plane apart."),
            apply=along_channels,
            anew=True,
        ),
        Step(
            name="blocked",
            title=msg("NCHW16c, vectors along the block of channels"),
            workload=CONV2D_BLOCKED,
            apply=blocked,
        ),
    ),
    exercise=exercises.number(
        msg(
            "In NCHW, how many bytes lie between two neighbouring channels of one output pixel, at "
            "this size?"
        ),
        lambda study: study.size * study.size * 4,
        lambda study, right: msg(
            "Yes: a plane of {size} x {size} numbers. In NCHW16c it is 4 bytes.", size=study.size
        ),
    ),
    closing=msg("Next: tvmscope learn reduction"),
)
