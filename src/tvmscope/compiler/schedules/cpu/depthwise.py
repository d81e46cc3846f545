"""Depthwise convolution on channel blocks: columns in registers, the kernel's taps unrolled.

There is little arithmetic per byte here, so a chunk of rows must be padded, convolved and finished
while it is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    find_op,
    inline_epilogue,
    keep_in_registers,
    schedule_copies,
    vectorize_last,
)
from tvmscope.compiler.schedules.cpu.parameters import COLUMNS, ROWS
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_CHUNK_BYTES = 128 * 1024
"""The padded input of a chunk of rows: a part of a second-level cache."""


def schedule_depthwise(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a blocked depthwise convolution and injective blocks around it."""
    sch = new_schedule(func)
    conv = find_op(sch, "depthwise")
    if conv is None:
        return None
    epilogue = inline_epilogue(sch, conv)
    padding = [p for p in sch.get_producers(conv) if len(sch.get(p).writes) == 1]
    n, c, oh, ow, block, kh, kw = sch.get_loops(conv)
    params = params_of(sch, conv)
    oh_o, oh_i = sch.split(oh, factors=[None, int_of(params, "rows") or _rows(sch, conv, padding)])
    computed, wanted = (int(sch.get(loop).extent) for loop in (ow, sch.get_loops(epilogue)[3]))
    width = int_of(params, "tile") or int_of(params, "columns") or _width(computed, target)
    finish = computed == wanted > width  # a tile is finished before the next one begins
    ow_o, ow_i = sch.split(ow, factors=[None, width])
    sch.reorder(n, c, oh_o, oh_i, ow_o, kh, kw, ow_i, block)
    task = sch.fuse(n, c, oh_o)
    sch.reverse_compute_at(epilogue, ow_o if finish else oh_i, preserve_unit_loops=True)
    if len(padding) == 1:
        sch.compute_at(padding[0], task)
        vectorize_last(sch, padding[0])
    else:
        schedule_copies(sch, before=conv)
    sch.parallel(task)
    for loop in (kh, kw, ow_i):
        sch.unroll(loop)
    sch.vectorize(block)
    if finish:
        keep_in_registers(sch, conv, epilogue)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, kh)
    return sch


def space(func: tirx.PrimFunc, target: Target) -> Space | None:
    """Return values of the parameters that divide the image, the rule's own values first."""
    sch = new_schedule(func)
    conv = find_op(sch, "depthwise")
    if conv is None:
        return None
    padding = [p for p in sch.get_producers(conv) if len(sch.get(p).writes) == 1]
    height, computed = (int(sch.get(loop).extent) for loop in sch.get_loops(conv)[2:4])
    rows = _rows(sch, conv, padding)
    width = int_of(params_of(sch, conv), "columns") or _width(computed, target)
    widths = (w for w in range(2, tiles.most_columns(target) + 1) if computed % w == 0)
    return {
        "rows": default_first(rows, (r for r in range(1, height + 1) if height % r == 0)),
        "tile": default_first(width, widths),
    }


def _width(columns: int, target: Target) -> int:
    """Return the columns of a tile: in long rows half of those that fit; taps need registers."""
    whole = tiles.columns(columns, target)
    return whole // 2 if columns > whole and whole % 2 == 0 else whole


def _rows(sch: s_tir.Schedule, conv: Block, padding: list[Block]) -> int:
    """Return the rows of a task: as many as the cache holds, a divisor of all of them."""
    rows = int(sch.get(sch.get_loops(conv)[2]).extent)
    if not padding:
        return 1
    source = sch.get(padding[0]).writes[0].source
    row_bytes = int(source.shape[3]) * int(source.shape[4]) * int(source.dtype.bits) // 8
    total = int(source.shape[2])
    most = max(1, _CHUNK_BYTES // row_bytes * rows // total)
    return next(r for r in range(min(rows, most), 0, -1) if rows % r == 0)


RULE = ScheduleRule(
    name="depthwise",
    devices=("cpu",),
    version=1,
    words=marked(
        "Depthwise convolution on channel blocks: a chunk of rows is finished in the cache."
    ),
    schedule=schedule_depthwise,
    space=space,
    parameters={
        **COLUMNS,
        **ROWS,
        "tile": marked("{value} columns of the result are kept in registers at a time"),
    },
    switch=Switch(name="depthwise-schedule", needs=("layout",)),
)
