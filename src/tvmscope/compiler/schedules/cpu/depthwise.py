"""Depthwise convolution on channel blocks: columns in registers, the kernel's taps unrolled."""

from __future__ import annotations

from tvm import s_tir, tirx

from tvmscope.compiler import tiles
from tvmscope.compiler.schedules.cpu.blocks import (
    find_op,
    inline_epilogue,
    schedule_copies,
    vectorize_last,
)
from tvmscope.core.target import Target


def schedule_depthwise(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a blocked depthwise convolution and injective blocks around it."""
    sch = s_tir.Schedule(func)
    conv = find_op(sch, "depthwise")
    if conv is None:
        return None
    epilogue = inline_epilogue(sch, conv)
    schedule_copies(sch, before=conv)
    n, c, oh, ow, block, kh, kw = sch.get_loops(conv)
    width = tiles.columns(int(sch.get(ow).extent), target)
    ow_o, ow_i = sch.split(ow, factors=[None, width])
    sch.reorder(n, c, oh, ow_o, kh, kw, ow_i, block)
    task = sch.fuse(n, c, oh)
    sch.reverse_compute_at(epilogue, task)
    sch.parallel(task)
    for loop in (kh, kw, ow_i):
        sch.unroll(loop)
    sch.vectorize(block)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, kh)
    return sch
