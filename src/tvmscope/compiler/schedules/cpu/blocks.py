"""Steps that several CPU rules share: finding the main block, its epilogue and its copies."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from tvmscope.compiler.blocked_ops import OP

Block = Any
"""A schedule's handle of a block."""


def all_blocks(sch: s_tir.Schedule) -> list[Block]:
    """The function's blocks, producers first."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def find_op(sch: s_tir.Schedule, op: str) -> Block | None:
    """The block that is annotated with `op`."""
    for block in all_blocks(sch):
        found = sch.get(block).annotations.get(OP)
        if found is not None and str(found) == op:
            return block
    return None


def inline_epilogue(sch: s_tir.Schedule, main: Block) -> Block:
    """Inline everything behind `main` into one last block; make one where there is none."""
    consumers = sch.get_consumers(main)
    if not consumers:
        return _copy_out(sch, main)
    while True:
        (consumer,) = sch.get_consumers(main)
        following = sch.get_consumers(consumer)
        if not following:
            return consumer
        sch.compute_inline(consumer)


def _copy_out(sch: s_tir.Schedule, main: Block) -> Block:
    sch.cache_write(main, 0, "global")
    (copy,) = sch.get_consumers(main)
    return copy


def schedule_copies(sch: s_tir.Schedule, before: Block) -> None:
    """Blocks that prepare the main one's data (padding): parallel rows, vectorised last axis."""
    for block in sch.get_producers(before):
        for producer in sch.get_producers(block):
            sch.compute_inline(producer)
        loops = sch.get_loops(block)
        if int(sch.get(loops[-1]).extent) > 1:
            vectorize_last(sch, block)
        sch.parallel(sch.fuse(*loops[:3]))


def vectorize_last(sch: s_tir.Schedule, block: Block, widest: int = 16) -> None:
    """Vectorise the innermost loop of a block, in pieces of at most `widest` elements."""
    loop = sch.get_loops(block)[-1]
    extent = sch.get(loop).extent
    if not isinstance(extent, tirx.IntImm):
        return
    for width in (widest, widest // 2, widest // 4):
        if int(extent) % width == 0:
            if int(extent) != width:
                _, loop = sch.split(loop, factors=[None, width])
            sch.vectorize(loop)
            return
