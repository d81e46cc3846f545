"""Steps that several CPU rules share: finding the main block, its epilogue and its copies."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.kernels.marks import OP
from tvmscope.compiler.schedules.blocks import Block, all_blocks

if TYPE_CHECKING:
    from tvm import s_tir


def default_first(default: int | str, values: Iterable[int | str]) -> tuple[int | str, ...]:
    """Return the values without repetition, `default` first."""
    return tuple(dict.fromkeys((default, *values)))


def find_op(sch: s_tir.Schedule, op: str) -> Block | None:
    """Return the block that is annotated with `op`."""
    for block in all_blocks(sch):
        found = sch.get(block).annotations.get(OP)
        if found is not None and str(found) == op:
            return block
    return None


def is_op(sch: s_tir.Schedule, op: str) -> bool:
    """Whether the function is one block with loops of its own, annotated with `op`."""
    from tvm.s_tir import SBlockRealize

    body = sch.mod["main"].body
    return isinstance(body, SBlockRealize) and str(body.block.annotations.get(OP)) == op


def weight_bytes(sch: s_tir.Schedule, main: Block) -> int:
    """Return the size of a block's last operand."""
    source = sch.get(main).reads[-1].source
    return prod(int(d) for d in source.shape) * int(source.dtype.bits) // 8


def find_reduction(sch: s_tir.Schedule) -> tuple[Block, int] | None:
    """Return the only reduction and how many axes it reduces; None if it reads several buffers."""
    from tvm.tirx import IterVar

    found = [b for b in all_blocks(sch) if sch.get(b).init is not None]
    if len(found) != 1:
        return None
    node = sch.get(found[0])
    kinds = [v.iter_type for v in node.iter_vars]
    axes = kinds.count(IterVar.CommReduce)
    if kinds[-axes:] != [IterVar.CommReduce] * axes:
        return None
    return (found[0], axes) if len(node.reads) == len(node.writes) == 1 else None


def inline_epilogue(sch: s_tir.Schedule, main: Block) -> Block:
    """Inline everything after `main` into one last block; make one if there is none."""
    if not sch.get_consumers(main):
        return _copy_out(sch, main)
    behind: list[Block] = []
    for block in all_blocks(sch):
        sources = {sch.get(p).name_hint for p in sch.get_producers(block)}
        if sources & {sch.get(b).name_hint for b in (main, *behind)}:
            behind.append(block)
    *inner, last = behind
    for block in inner:
        sch.compute_inline(block)
    return last


def _copy_out(sch: s_tir.Schedule, main: Block) -> Block:
    sch.cache_write(main, 0, "global")
    (copy,) = sch.get_consumers(main)
    return copy


def schedule_copies(sch: s_tir.Schedule, before: Block) -> None:
    """Schedule blocks that prepare the data (padding): parallel rows, vectorised last axis."""
    for block in sch.get_producers(before):
        for producer in sch.get_producers(block):
            sch.compute_inline(producer)
        loops = sch.get_loops(block)
        if len(loops) > 1:
            vectorize_last(sch, block)
        outer = loops[:-2] or loops[:1]
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])


def keep_in_registers(sch: s_tir.Schedule, main: Block, epilogue: Block) -> None:
    """Pass the finished tile from `main` to its epilogue in registers, not through memory."""
    sch.set_scope(main, 0, "local")
    sch.unroll(sch.get_loops(epilogue)[-2])


def vectorize_last(sch: s_tir.Schedule, block: Block, widest: int = 16) -> None:
    """Vectorise the innermost loop of a block, in pieces of at most `widest` elements."""
    from tvm.tirx import IntImm

    loop = sch.get_loops(block)[-1]
    extent = sch.get(loop).extent
    if not isinstance(extent, IntImm):
        return
    for width in (widest, widest // 2, widest // 4):
        if int(extent) % width == 0:
            if int(extent) != width:
                _, loop = sch.split(loop, factors=[None, width])
            sch.vectorize(loop)
            return
