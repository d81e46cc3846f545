"""Dense convolution on channel blocks: a register tile of columns x one block of channels.

parallel  image x channel block x output row
  ic_o        input channels in chunks whose weights stay in the first-level cache
    ow_o        tiles of columns
      kh, kw, ic  the reduction; the sums stay in registers
        ow_i, 16    unrolled columns, vectorised channels
  epilogue    bias, addition, activation on the finished row, still in cache
"""

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

_CHUNKS = (64, 48, 32, 16)
_UNROLL = 4


def schedule_conv2d(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a blocked convolution and injective blocks around it."""
    sch = s_tir.Schedule(func)
    conv = find_op(sch, "conv2d")
    if conv is None:
        return None
    epilogue = inline_epilogue(sch, conv)
    schedule_copies(sch, before=conv)
    n, oc, oh, ow, block, ic, kh, kw = sch.get_loops(conv)
    width = tiles.columns(int(sch.get(ow).extent), target)
    ow_o, ow_i = sch.split(ow, factors=[None, width])
    ic_o, ic_i = sch.split(ic, factors=[None, _chunk(int(sch.get(ic).extent))])
    sch.reorder(n, oc, oh, ic_o, ow_o, kh, kw, ic_i, ow_i, block)
    task = sch.fuse(n, oc, oh)
    sch.reverse_compute_at(epilogue, task)
    sch.parallel(task)
    if int(sch.get(ic_i).extent) % _UNROLL == 0:
        _, unrolled = sch.split(ic_i, factors=[None, _UNROLL])
        sch.unroll(unrolled)
    sch.unroll(ow_i)
    sch.vectorize(block)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, ic_o)
    return sch


def _chunk(channels: int) -> int:
    return next((c for c in _CHUNKS if channels % c == 0), channels)
