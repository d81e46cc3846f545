"""Transposes, concatenations, padding, slices, gathers, resizes: copies with changed indices.

parallel  outer axes, until there is work for every core
  rows      the last axis by itself: its vectors do not cross the ends of rows
or, if the input is contiguous along another axis:
  tiles     of that axis x the last one, so that whole cache lines are read as well as written

The fallback makes one long loop of all axes. If elements are read at other indices than they are
written to, each element of its vectors needs its own address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.kernels.marks import PICK
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule, static_extents
from tvmscope.compiler.schedules.cpu.blocks import is_op
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.ir import Range

_TASKS_PER_CORE = 4
_TILES = (16, 8, 4)


def schedule_movement(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions of injective blocks with one result that reads something elsewhere, and
    copies of channels, whose loops are as they should be."""
    from tvm.s_tir import ScheduleError

    sch = new_schedule(func)
    if is_op(sch, PICK):
        return sch
    blocks = all_blocks(sch)
    if not blocks or not all(_is_injective(sch, b) for b in blocks):
        return None
    *inner, last = blocks
    if not all(sch.get_consumers(b) for b in inner):
        return None  # several results
    try:
        for block in inner:
            sch.compute_inline(block)
    except ScheduleError:
        return None  # a block with its own loops
    extents = static_extents(sch, last)
    if extents is None or len(extents) < 2 or not _moves(sch, last) or _repeats(sch, last):
        return None
    loops = sch.get_loops(last)
    read, width = _read_axis(sch, last), _tile(extents[-1])
    if read is not None and width and (height := _tile(extents[read])):
        loops = _tile_both(sch, loops, read, height, width)
    elif width:
        rest, vector = sch.split(loops[-1], factors=[None, width])
        sch.vectorize(vector)
        loops = [*loops[:-1], rest]
    _parallelize(sch, loops, target)
    return sch


def _tile_both(
    sch: s_tir.Schedule, loops: list[s_tir.schedule.LoopRV], read: int, height: int, width: int
) -> list[s_tir.schedule.LoopRV]:
    """Tile two loops; in each tile the axis of reading is unrolled, the last one vectorised."""
    *ahead, last = loops
    ahead[read], row = sch.split(ahead[read], factors=[None, height])
    last, vector = sch.split(last, factors=[None, width])
    sch.reorder(*ahead, last, row, vector)
    sch.unroll(row)
    sch.vectorize(vector)
    return [*ahead, last]


def _parallelize(sch: s_tir.Schedule, loops: list[s_tir.schedule.LoopRV], target: Target) -> None:
    """Fuse loops until there is work for every core, but keep the last one."""
    count, tasks = 0, 1
    while count < len(loops) - 1 and tasks < target.cores * _TASKS_PER_CORE:
        tasks *= int(sch.get(loops[count]).extent)
        count += 1
    sch.parallel(sch.fuse(*loops[:count]) if count > 1 else loops[0])


def _is_injective(sch: s_tir.Schedule, block: Block) -> bool:
    from tvm import tirx

    node = sch.get(block)
    kinds = {v.iter_type for v in node.iter_vars}
    return node.init is None and kinds <= {tirx.IterVar.DataPar} and len(node.writes) == 1


def _moves(sch: s_tir.Schedule, block: Block) -> bool:
    """Whether a read's index is computed, or its axes are in another order than the result's."""
    from tvm import tirx

    node = sch.get(block)
    order: dict[tirx.Expr, int] = {v.var: i for i, v in enumerate(node.iter_vars)}
    for read in node.reads:
        indices = [r.min for r in read.region if not isinstance(r.min, tirx.IntImm)]
        if any(i not in order for i in indices) or not all(_is_point(r) for r in read.region):
            return True
        places = [order[i] for i in indices]
        if places != sorted(places):
            return True
    return False


def _repeats(sch: s_tir.Schedule, block: Block) -> bool:
    """Whether a value is read repeatedly from its beginning, as by `tile`.

    TVM 0.27 computes such indices wrongly in nested loops: (a % 4) * 5 + b % 5 loses the first
    remainder. In the fallback's one long loop they are right.
    """
    for read in sch.get(block).reads:
        places = [str(r.min) for r in read.region]
        if any("%" in p for p in places) and not any("//" in p for p in places):
            return True
    return False


def _is_point(dimension: Range) -> bool:
    from tvm import tirx

    return isinstance(dimension.extent, tirx.IntImm) and int(dimension.extent) == 1


def _read_axis(sch: s_tir.Schedule, block: Block) -> int | None:
    """Return the axis along which memory is read contiguously, if it is not the last one."""
    from tvm.s_tir.dlight.analysis import collect_vars_used_in_prim_expr

    node = sch.get(block)
    axes = [v.var for v in node.iter_vars]
    for read in node.reads:
        if not read.region:
            continue
        used = collect_vars_used_in_prim_expr(read.region[-1].min)
        found = [i for i, axis in enumerate(axes) if axis in used]
        if len(found) == 1 and found[0] != len(axes) - 1:
            return found[0]
    return None


def _tile(extent: int) -> int | None:
    return next((n for n in _TILES if extent % n == 0), None)


RULE = ScheduleRule(
    name="movement",
    devices=("cpu",),
    version=2,
    words=marked(
        "Copies with changed indices: vectors along rows, or tiles that read whole cache lines."
    ),
    schedule=schedule_movement,
    switch=Switch(name="movement-schedule"),
)
