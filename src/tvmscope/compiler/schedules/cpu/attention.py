"""Attention: one task per head and tile of rows, whose scores stay in the first-level cache.

parallel  batch x heads x tiles of rows
  scores    a register tile of rows x one panel of keys
  softmax   row by row, in the lanes of vectors
  mixed     a register tile of rows x one panel of values
  result    divided by the row's sum, with the epilogue
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.kernels.marks import OP
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu.blocks import (
    find_op,
    inline_epilogue,
    schedule_copies,
    vectorize_last,
)
from tvmscope.compiler.schedules.cpu.norms import inline_cheap, vectorize_elements, vectorize_stage
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx


def schedule_attention(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with the annotated stages and elementwise blocks after them."""
    sch = new_schedule(func)
    main, scores, mixed = (find_op(sch, f"attention{name}") for name in ("", "_scores", "_mixed"))
    if main is None or scores is None or mixed is None:
        return None
    last = inline_epilogue(sch, main) if sch.get_consumers(main) else None
    schedule_copies(sch, before=scores)
    stages = inline_cheap(sch, keep=(main, *((last,) if last else ()), *sch.get_producers(scores)))
    b, i, _ = sch.get_loops(main)
    i_o, _ = sch.split(i, factors=[None, tiles.rows(int(sch.get(i).extent), target)])
    task = sch.fuse(b, i_o)
    for block in reversed(stages):
        sch.compute_at(block, task, preserve_unit_loops=True)
    if last is not None:
        sch.reverse_compute_at(last, task, preserve_unit_loops=True)
        vectorize_last(sch, last)
    sch.parallel(task)
    for block in stages:
        if sch.get(block).annotations.get(OP) is None:
            vectorize_stage(sch, block)
        else:
            _multiply(sch, block)
    vectorize_elements(sch, main)
    return sch


def _multiply(sch: s_tir.Schedule, block: Block) -> None:
    """Keep rows x one panel in registers."""
    rows, panels, columns, k = sch.get_loops(block)[-4:]
    vectors, lanes = sch.split(columns, factors=[None, CHANNEL_BLOCK])
    sch.reorder(panels, k, rows, vectors, lanes)
    sch.unroll(rows)
    sch.unroll(vectors)
    sch.vectorize(lanes)
    sch.decompose_reduction(block, k)


RULE = ScheduleRule(
    name="attention",
    devices=("cpu",),
    version=1,
    words=marked("Attention: one task per head and tile of rows, whose scores stay in the cache."),
    schedule=schedule_attention,
    switch=Switch(name="attention-schedule", needs=("attention",)),
)
