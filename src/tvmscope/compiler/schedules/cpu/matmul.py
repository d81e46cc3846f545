"""Matmul on column panels: a register tile of rows x one panel.

parallel  batch x rows x panels, or panels x rows where the rows of a tile overflow the cache
  k_o       chunks of the reduction
    k         the sums stay in registers
      m, v, 16  unrolled rows and vectors of the panel
  epilogue  bias, activation on the finished tile
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.ports import is_wide, ports
from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    find_op,
    inline_epilogue,
    schedule_copies,
    vectorize_last,
)
from tvmscope.compiler.schedules.cpu.parameters import ROWS, SUMS
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_CHUNK = 128
_FIRST_CACHE_BYTES = 32 * 1024
"""The first-level data cache of most cores: a tile's rows are read once per panel."""


def schedule_matmul(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a packed matmul and injective blocks around it.

    Parameters: the tile's `rows`, the `chunk` of the reduction, how much of it is `unroll`ed, and
    the `order` of the tasks (`rows` or `panels` outermost).
    """
    sch = new_schedule(func)
    block = find_op(sch, "matmul")
    if block is None:
        return None
    epilogue = inline_epilogue(sch, block)
    schedule_copies(sch, before=block)
    *batch, m, n, k = sch.get_loops(block)
    params = params_of(sch, block)
    tall = int(sch.get(m).extent)
    height = int_of(params, "rows") or tiles.rows(tall, target)
    order = str(params.get("order", _order(sch, block, height, target)))
    fetches = bool(params.get("prefetch", int(_fetches(sch, block, order, height))))
    panel = tiles.panel(target)
    m_o, m_i = sch.split(m, factors=[None, height])
    n_o, n_v, n_i = sch.split(n, factors=[None, panel // CHANNEL_BLOCK, CHANNEL_BLOCK])
    depth = int(sch.get(k).extent)
    chunk = int_of(params, "chunk") or _chunk(depth, tall // height if fetches else 0, target)
    chunk = chunk if depth % chunk == 0 else depth
    k_o, k_i = sch.split(k, factors=[None, chunk])
    outer = (m_o, n_o) if order == "rows" else (n_o, m_o)
    sch.reorder(*batch, *outer, k_o, k_i, m_i, n_v, n_i)
    task = sch.fuse(*batch, *outer)
    sch.reverse_compute_at(epilogue, task, preserve_unit_loops=True)
    sch.parallel(task)
    unroll = int_of(params, "unroll") or tiles.UNROLL
    unroll = unroll if chunk % unroll == 0 else 1
    _, unrolled = sch.split(k_i, factors=[None, unroll])
    sch.unroll(unrolled)
    sch.unroll(m_i)
    sch.unroll(n_v)
    sch.vectorize(n_i)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(block, k_o)
    if fetches:
        plan = prefetch.Plan(
            block_axis=len(sch.get(block).reads[-1].region) - 3,
            rows=chunk,
            repeat=len(batch),
            step=height,
            repeats=tall // height,
        )
        prefetch.mark(sch, k_o, plan)
    return sch


def space(func: tirx.PrimFunc, target: Target) -> Space | None:
    """Return values of the parameters that divide the reduction, the rule's own values first."""
    sch = new_schedule(func)
    block = find_op(sch, "matmul")
    if block is None:
        return None
    *_, m, _, k = sch.get_loops(block)
    depth, tall = int(sch.get(k).extent), int(sch.get(m).extent)
    height = int_of(params_of(sch, block), "rows") or tiles.rows(tall, target)
    order = _order(sch, block, height, target)
    fetches = _fetches(sch, block, order, height)
    chunks = (c for c in (64, 128, 192, 256, 384, 512, depth) if depth % c == 0)
    return {
        "order": (order, "panels" if order == "rows" else "rows"),
        "chunk": default_first(_chunk(depth, tall // height if fetches else 0, target), chunks),
        "unroll": default_first(tiles.UNROLL, (1, 2, 8)),
        "prefetch": (1, 0) if fetches else (0, 1),
    }


def _chunk(depth: int, fetching: int, target: Target) -> int:
    """The steps of a chunk, with which each of `fetching` tiles of rows prefetches its share of the
    next panel's: on cores that compute fast, no more lines at a time than they can wait for."""
    if fetching and is_wide(target):
        at_once = prefetch.steps_at_once(4 * tiles.panel(target), fetching)
        return tiles.chunk(depth, min(_CHUNK, at_once))
    return _CHUNK if depth % _CHUNK == 0 else depth


def _order(sch: s_tir.Schedule, block: Block, height: int, target: Target) -> str:
    depth = int(sch.get(sch.get_loops(block)[-1]).extent)
    bits = int(sch.get(block).writes[0].source.dtype.bits)
    if is_wide(target):  # such a core waits for panels that all pass by for each tile of rows
        columns = int(sch.get(sch.get_loops(block)[-2]).extent)
        return "rows" if columns * depth * bits // 8 <= ports(target).l2_bytes // 2 else "panels"
    return "rows" if height * depth * bits // 8 <= _FIRST_CACHE_BYTES else "panels"


def _fetches(sch: s_tir.Schedule, block: Block, order: str, height: int) -> bool:
    """Whether a panel is used several times before the next one, which is not in a cache."""
    repeats = int(sch.get(sch.get_loops(block)[-3]).extent) > height
    return order == "panels" and repeats and prefetch.far(sch, block)


RULE = ScheduleRule(
    name="matmul",
    devices=("cpu",),
    version=1,
    words=marked("Matrix product on packed column panels: a tile of rows stays in registers."),
    schedule=schedule_matmul,
    space=space,
    parameters={**ROWS, **SUMS},
    switch=Switch(name="matmul-schedule", needs=("packed-matmul",)),
)
