"""Pooling: the largest or the sum of a window that slides over rows and columns, in any layout.

parallel  images x channels x chunks of rows
  pad       the input of a chunk, while it is in the second-level cache
  rows
    columns   a tile in registers; the window's taps unrolled, channels in vectors
    epilogue  the division of a mean, and the operators fused after it

If columns are innermost (NCHW), they stay a simple loop around the unrolled taps, which LLVM
vectorises better than a vectorised axis would: the taps of neighbours lie a stride apart.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule, static_extents
from tvmscope.compiler.schedules.cpu.blocks import find_reduction, inline_epilogue, vectorize_last
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_CHUNK_BYTES = 128 * 1024
"""The padded input of a chunk of rows: a part of a second-level cache."""
_TASKS_PER_CORE = 4
_MOST_UNROLLED = 128
"""Taps times columns of a tile; more code than this does not fit the instruction cache."""


def schedule_pooling(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions whose one reduction slides a window, with injective blocks around it."""
    sch = new_schedule(func)
    pool, axes = find_reduction(sch) or (None, 0)
    if pool is None or axes != 2:
        return None
    at, extents = _row_axis(sch, pool), static_extents(sch, pool)
    if at is None or extents is None:
        return None
    last = inline_epilogue(sch, pool) if sch.get_consumers(pool) else None
    if last is not None and static_extents(sch, last) != extents[:-2]:
        return None  # a later block changes the shape
    padding = _inline_before(sch, pool)
    if last is None and padding is None and at + 2 < len(extents) - 2:
        return None  # nothing to keep in a cache: the fallback's plain loops are as fast
    *spatial, tap_y, tap_x = sch.get_loops(pool)
    ahead, row, column, behind = spatial[:at], spatial[at], spatial[at + 1], spatial[at + 2 :]
    row_o, row_i = sch.split(row, factors=[None, _rows(sch, padding, at, extents, target)])
    width = _width(extents[at + 1], extents[-2:], target) if behind else 1
    column_o, column_i = sch.split(column, factors=[None, width])
    sch.reorder(*ahead, row_o, row_i, column_o, tap_y, tap_x, column_i, *behind)
    task = sch.fuse(*ahead, row_o)
    if last is not None:
        sch.reverse_compute_at(last, column_o, preserve_unit_loops=True)
    if padding is not None:
        sch.compute_at(padding, task)
        vectorize_last(sch, padding)
    sch.parallel(task)
    if behind:
        vectorize_last(sch, pool)
        if prod(extents[-2:]) * width <= _MOST_UNROLLED:
            for loop in (tap_y, tap_x, column_i):
                sch.unroll(loop)
        if last is not None:
            sch.set_scope(pool, 0, "local")
            vectorize_last(sch, last)
    sch.decompose_reduction(pool, tap_y)
    return sch


def _row_axis(sch: s_tir.Schedule, pool: Block) -> int | None:
    """Return the first of the two neighbouring axes that a window slides over."""
    from tvm.s_tir.dlight.analysis import collect_vars_used_in_prim_expr

    node = sch.get(pool)
    *spatial, tap_y, tap_x = (v.var for v in node.iter_vars)
    used = [collect_vars_used_in_prim_expr(r.min) for r in node.reads[0].region]
    if len(used) != len(spatial):
        return None
    for at in range(len(spatial) - 1):
        expected = [{v} for v in spatial]
        expected[at] |= {tap_y}
        expected[at + 1] |= {tap_x}
        if used == expected:
            return at
    return None


def _inline_before(sch: s_tir.Schedule, pool: Block) -> Block | None:
    """Leave one block before the pooling, which pads or computes its input."""
    producers = sch.get_producers(pool)
    if not producers:
        return None
    while ahead := sch.get_producers(producers[0]):
        sch.compute_inline(ahead[0])
    return producers[0]


def _width(columns: int, taps: list[int], target: Target) -> int:
    """Return the columns of a tile: as many as fit the registers, a divisor of the row."""
    most = min(tiles.most_columns(target), max(1, _MOST_UNROLLED // prod(taps)))
    return next(w for w in range(most, 0, -1) if columns % w == 0)


def _rows(
    sch: s_tir.Schedule, padding: Block | None, at: int, extents: list[int], target: Target
) -> int:
    """Return the rows of a task, a divisor of all: those that fit a cache, or an even share."""
    rows = extents[at]
    if padding is None:
        most = max(1, prod(extents[: at + 1]) // (target.cores * _TASKS_PER_CORE))
    else:
        source = sch.get(padding).writes[0].source
        row_bytes = prod(int(d) for d in source.shape[at + 1 :]) * int(source.dtype.bits) // 8
        most = max(1, _CHUNK_BYTES // row_bytes * rows // int(source.shape[at]))
    return next(r for r in range(min(rows, most), 0, -1) if rows % r == 0)


RULE = ScheduleRule(
    name="pooling",
    devices=("cpu",),
    version=1,
    words=marked(
        "Pooling: a chunk of rows is padded and pooled while it is in the second-level cache."
    ),
    schedule=schedule_pooling,
    switch=Switch(name="pooling-schedule"),
)
