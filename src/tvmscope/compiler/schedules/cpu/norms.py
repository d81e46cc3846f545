"""Softmax, layer norm and similar operators: one task per row, which stays in the L1 cache.

parallel  rows
  lanes     a reduction in the lanes of a vector, then across them
  powers    elementwise stages that are kept, vectorised
  result    with the epilogue, vectorised
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tvmscope.compiler.kernels.marks import LANES, STAGE
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule
from tvmscope.compiler.schedules.cpu.blocks import find_op, inline_epilogue
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx


def schedule_rows(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with an annotated row operator and elementwise blocks after it."""
    sch = new_schedule(func)
    main = find_op(sch, "rows")
    if main is None:
        return None
    last = main
    if sch.get_consumers(main):
        last = inline_epilogue(sch, main)
        if _extents(sch, last) != _extents(sch, main):
            return None  # a later block changes the shape: rows are no longer rows
        sch.compute_inline(main)
    stages = inline_cheap(sch, keep=[last])
    row = sch.fuse(*sch.get_loops(last)[:-1])
    for block in reversed(stages):
        sch.compute_at(block, row, preserve_unit_loops=True)
    sch.parallel(row)
    for block in stages:
        vectorize_stage(sch, block)
    vectorize_elements(sch, last)
    return sch


def _extents(sch: s_tir.Schedule, block: Block) -> list[int]:
    return [int(sch.get(loop).extent) for loop in sch.get_loops(block)]


def inline_cheap(sch: s_tir.Schedule, keep: Iterable[Block]) -> list[Block]:
    """Inline all stages that are neither reductions nor marked; return the others in order.

    Those in `keep` are unchanged and not returned.
    """
    named = {sch.get(block).name_hint for block in keep}
    stages = []
    for block in all_blocks(sch):
        node = sch.get(block)
        if node.name_hint in named:
            continue
        if node.init is None and STAGE not in node.annotations:
            sch.compute_inline(block)
        else:
            stages.append(block)
    return stages


def vectorize_stage(sch: s_tir.Schedule, block: Block) -> None:
    """Vectorise a stage inside its task, as its mark says."""
    stage = str(sch.get(block).annotations.get(STAGE))
    loops = sch.get_loops(block)
    if stage == "lanes":
        lane, k = loops[-2:]
        sch.reorder(k, lane)
        sch.vectorize(lane)
        sch.decompose_reduction(block, k)
    elif stage == "across":
        sch.unroll(loops[-1])
        sch.decompose_reduction(block, loops[-1])
    elif stage == "elements":
        vectorize_elements(sch, block)


def vectorize_elements(sch: s_tir.Schedule, block: Block) -> None:
    """Vectorise the elements of a row; a remainder that fills no vector stays scalar."""
    loop = sch.get_loops(block)[-1]
    length = int(sch.get(loop).extent)
    whole = length // LANES * LANES
    if whole == 0:
        return
    if whole != length:
        loop, _ = sch.loop_partition(loop, factors=[whole, None])
    _, vector = sch.split(loop, factors=[None, LANES])
    sch.vectorize(vector)


RULE = ScheduleRule(
    name="rows",
    devices=("cpu",),
    version=1,
    words=marked(
        "Softmax, layer norm and similar operators: one task per row, which stays in the cache."
    ),
    schedule=schedule_rows,
    switch=Switch(name="rows-schedule", needs=("row-kernels",)),
)
