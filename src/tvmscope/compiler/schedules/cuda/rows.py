"""Softmax, norms, sums and maxima over the last axes: a warp or a block of threads for each row.

blocks       rows; several short ones share a block, a warp each
  reduction  over the row's threads, from what is before it, computed on the way
  result     the row's elements, neighbours on neighbouring threads
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule, static_extents
from tvmscope.compiler.schedules.cuda.elements import is_injective
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import LoopRV

_WARP = 32
_WARPS = 4
_LONG_ROW = 1024
_SHORTEST_ROW = 16


def schedule_rows(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes reductions of the same rows, and elementwise blocks before, between and after them."""
    from tvm.s_tir import ScheduleError

    sch = new_schedule(func)
    blocks = all_blocks(sch)
    if any(static_extents(sch, block) is None for block in blocks):
        return None
    reductions = [b for b in blocks if sch.get(b).init is not None]
    others = [b for b in blocks if sch.get(b).init is None]
    ends = [b for b in blocks if not sch.get_consumers(b)]
    if not reductions or len(ends) != 1 or not all(is_injective(sch, b) for b in others):
        return None
    rows, length = _row(sch, reductions[0])
    if length < _SHORTEST_ROW or any(_row(sch, b) != (rows, length) for b in reductions):
        return None
    (end,) = ends
    if sch.get(end).init is not None:
        sch.cache_write(end, 0, "local")
        (end,) = sch.get_consumers(end)
    name = sch.get(end).name_hint
    try:
        for block in others:
            if sch.get(block).name_hint != name:
                sch.compute_inline(block)
    except ScheduleError:
        return None  # a block with its own loops
    if not all(_along_row(sch, block) for block in reductions):
        return None
    return _schedule(sch, reductions, end, prod(rows), length)


def _row(sch: s_tir.Schedule, block: Block) -> tuple[list[int], int]:
    """Return the axes that a reduction keeps, without those of one place, and a row's length."""
    from tvm.tirx import IterVar

    axes = sch.get(block).iter_vars
    kept = [int(v.dom.extent) for v in axes if v.iter_type == IterVar.DataPar]
    summed = [int(v.dom.extent) for v in axes if v.iter_type == IterVar.CommReduce]
    return [size for size in kept if size > 1], prod(summed)


def _along_row(sch: s_tir.Schedule, block: Block) -> bool:
    """Whether a reduction reads neighbours: the last axis that it sums is the last in memory."""
    from tvm.tirx import IterVar

    node = sch.get(block)
    summed = [v for v in node.iter_vars if v.iter_type == IterVar.CommReduce]
    ordered = list(node.iter_vars)[-len(summed) :] == summed
    wide = [v.var for v in summed if int(v.dom.extent) > 1]
    reads = [r for r in node.reads if r.region]
    return ordered and any(r.region[-1].min.same_as(wide[-1]) for r in reads)


def _schedule(
    sch: s_tir.Schedule, reductions: list[Block], end: Block, rows: int, length: int
) -> s_tir.Schedule | None:
    loops = sch.get_loops(end)
    extents = [int(sch.get(loop).extent) for loop in loops]
    split = next((i for i in range(len(loops) + 1) if prod(extents[:i]) == rows), None)
    if split is None or prod(extents[split:]) not in (1, length):
        return None
    long = length > _LONG_ROW
    threads = _WARP * 2 * _WARPS if long else _WARP
    wide = [size for size in extents[:split] if size > 1]
    # rows of several axes have places again only if a block's rows divide the last axis
    together = 1 if long else min(_WARPS, rows) if len(wide) < 2 else gcd(_WARPS, wide[-1])
    if not split:
        loops, split = [sch.add_unit_loop(loops[0] if loops else end), *loops], 1
    columns = loops[split:] or [sch.add_unit_loop(end)]
    x, y = sch.split(sch.fuse(*loops[:split]), [None, together])
    sch.bind(x, "blockIdx.x")
    sch.bind(y, "threadIdx.y")
    _share(sch, sch.fuse(*columns), threads)
    for block in reversed(reductions):
        sch.set_scope(block, 0, "shared")
        sch.compute_at(block, y, preserve_unit_loops=True)
        summed = sch.get_loops(block)[-_reduced(sch, block) :]
        _share(sch, sch.fuse(*summed), threads)
    return sch


def _reduced(sch: s_tir.Schedule, block: Block) -> int:
    from tvm.tirx import IterVar

    return sum(v.iter_type == IterVar.CommReduce for v in sch.get(block).iter_vars)


def _share(sch: s_tir.Schedule, loop: LoopRV, threads: int) -> None:
    """Give neighbours on a row to neighbouring threads."""
    _, thread = sch.split(loop, [None, threads])
    sch.bind(thread, "threadIdx.x")


RULE = ScheduleRule(
    name="tir-rows",
    devices=("cuda",),
    version=1,
    words=marked(
        "Softmax, norms and reductions of rows in one kernel: a warp per row, or a block of "
        "threads where rows are long."
    ),
    schedule=schedule_rows,
    switch=Switch(name="tir-rows-schedule", alone=False),
    shared_switch=Switch(name="tir-schedules", alone=False),
)
