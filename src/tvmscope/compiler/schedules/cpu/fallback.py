"""Schedules kernels that no other rule takes: outer loops parallel, innermost loop vectorised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import new_schedule
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.dlight.analysis import SBlockInfo

_TASKS_PER_CORE = 4
"""More chunks than cores, so that a late thread does not delay the others."""
_LONG_ROW = 32


def schedule_fallback(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Inline blocks that are cheap to recompute, then map each other block to cores and vectors."""
    from tvm.s_tir.dlight.analysis import normalize_prim_func

    sch = new_schedule(func)
    blocks = normalize_prim_func(sch)
    if blocks is None:
        return None
    for block in _inline(sch, blocks):
        _schedule_block(sch, block, target)
    return sch


def _inline(sch: s_tir.Schedule, blocks: list[SBlockInfo]) -> list[SBlockInfo]:
    """Inline injective blocks into injective ones; into a reduction it would repeat the work."""
    from tvm.s_tir import ScheduleError

    injective = {block.name for block in blocks if block.is_injective()}
    kept = []
    for block in blocks:
        consumers = sch.get_consumers(block.block_rv)
        simple = consumers and all(sch.get(c).name_hint in injective for c in consumers)
        if block.is_injective() and simple:
            try:
                sch.compute_inline(block.block_rv)
                continue
            except ScheduleError:
                pass  # not inlinable (several writes, an opaque access): scheduled separately
        kept.append(block)
    return kept


def _schedule_block(sch: s_tir.Schedule, block: SBlockInfo, target: Target) -> None:
    loops = sch.get_loops(block.block_rv)
    kinds = block.dom_kind()
    if len(loops) != len(kinds) or "O" in kinds:
        return  # opaque blocks keep their loops
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    reduction = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    if not spatial:
        return
    lanes = target.vector_bits // _element_bits(sch, block)
    outer, vector = _take_vector(sch, spatial, lanes)
    if reduction:
        sch.reorder(*outer, *reduction, *([vector] if vector is not None else []))
    elif vector is None and _is_short(sch, spatial[-1]):
        # Rows fill no vectors, but all of them together may. LLVM vectorises long ones itself.
        outer, vector = _take_vector(sch, [sch.fuse(*spatial)], lanes)
    if outer:
        sch.parallel(_parallel_loop(sch, outer, target))
    if vector is not None:
        sch.vectorize(vector)
    if reduction:  # last: the parts of a decomposed reduction can no longer be vectorised
        sch.decompose_reduction(block.block_rv, reduction[0])


def _take_vector(
    sch: s_tir.Schedule, spatial: list[s_tir.schedule.LoopRV], lanes: int
) -> tuple[list[s_tir.schedule.LoopRV], s_tir.schedule.LoopRV | None]:
    """Split the widest vector that divides the innermost loop off it."""
    from tvm.tirx import IntImm

    extent = sch.get(spatial[-1]).extent
    if not isinstance(extent, IntImm):
        return spatial, None
    width = next((w for w in (lanes, lanes // 2, lanes // 4) if w > 1 and int(extent) % w == 0), 0)
    if not width:
        return spatial, None
    if int(extent) == width and len(spatial) > 1:
        return spatial[:-1], spatial[-1]
    rest, vector = sch.split(spatial[-1], factors=[None, width])
    return [*spatial[:-1], rest], vector


def _parallel_loop(
    sch: s_tir.Schedule, outer: list[s_tir.schedule.LoopRV], target: Target
) -> s_tir.schedule.LoopRV:
    """Fuse outer loops until there is work for every core."""
    from tvm.tirx import IntImm

    enough, count, extent = target.cores * _TASKS_PER_CORE, 0, 1
    for loop in outer:
        bound = sch.get(loop).extent
        extent *= int(bound) if isinstance(bound, IntImm) else enough
        count += 1
        if extent >= enough:
            break
    return sch.fuse(*outer[:count]) if count > 1 else outer[0]


def _element_bits(sch: s_tir.Schedule, block: SBlockInfo) -> int:
    writes = sch.get(block.block_rv).writes
    return max(8, int(writes[0].source.dtype.bits)) if writes else 32


def _is_short(sch: s_tir.Schedule, loop: s_tir.schedule.LoopRV) -> bool:
    from tvm.tirx import IntImm

    extent = sch.get(loop).extent
    return isinstance(extent, IntImm) and int(extent) < _LONG_ROW


RULE = ScheduleRule(
    name="fallback",
    devices=("cpu",),
    version=1,
    words=marked(
        "Kernels that no other rule takes: outer loops in parallel, the innermost loop vectorised."
    ),
    schedule=schedule_fallback,
    switch=Switch(name="fallback-schedule"),
    last_resort=True,
)
