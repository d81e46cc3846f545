"""Kernels that compute each element by itself: casts, sums, transposes, concatenations, resizes.

blocks, threads   all elements of a result, neighbours on neighbouring threads
  vector          of 16 bytes, where the last axis and what is read along it allow
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule, static_extents
from tvmscope.compiler.schedules.cuda.vectors import widest_vector
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import LoopRV

_THREADS = 256
_FEWEST_THREADS = 64
_BLOCKS = 264
"""Enough blocks for two on each multiprocessor of a large GPU: fewer elements get smaller ones."""


def schedule_elements(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions whose blocks all compute one element of one buffer."""
    sch = new_schedule(func)
    blocks = all_blocks(sch)
    if not blocks or not all(is_injective(sch, block) for block in blocks):
        return None
    results = inline_all(sch, blocks)
    if any(static_extents(sch, block) is None for block in results):
        return None
    for block in results:
        spread(sch, block)
    return sch


def is_injective(sch: s_tir.Schedule, block: Block) -> bool:
    """Whether a block computes each element of one buffer by itself, with loops of its own."""
    from tvm import tirx

    node = sch.get(block)
    kinds = {v.iter_type for v in node.iter_vars}
    plain = node.init is None and kinds <= {tirx.IterVar.DataPar} and len(node.writes) == 1
    return plain and isinstance(node.body, tirx.BufferStore)


def inline_all(sch: s_tir.Schedule, blocks: list[Block]) -> list[Block]:
    """Inline each block into those that read it, and return the others; results stay."""
    from tvm.s_tir import ScheduleError

    kept = []
    for block in blocks:
        if sch.get_consumers(block):
            try:
                sch.compute_inline(block)
                continue
            except ScheduleError:
                pass  # a result that is read again, or a copy by another index
        kept.append(block)
    return kept


def spread(sch: s_tir.Schedule, block: Block) -> None:
    """Distribute a block's elements over blocks of threads, in vectors."""
    loops = sch.get_loops(block)
    extents = [int(sch.get(loop).extent) for loop in loops]
    if not loops:
        loops = [sch.add_unit_loop(block)]
        extents = [1]
    lanes = gcd(widest_vector(sch.get(block)), extents[-1])
    _, vector = distribute(sch, loops, lanes)
    if lanes > 1:
        sch.vectorize(vector)


def distribute(sch: s_tir.Schedule, loops: list[LoopRV], lanes: int) -> tuple[LoopRV, LoopRV]:
    """Bind loops to blocks and threads but for vectors of the last; return the threads' loop and
    the vectors'."""
    rest, vector = sch.split(loops[-1], [None, lanes])
    fused = sch.fuse(*loops[:-1], rest)
    x, y = sch.split(fused, [None, threads_for(int(sch.get(fused).extent))])
    sch.bind(x, "blockIdx.x")
    sch.bind(y, "threadIdx.x")
    return y, vector


def threads_for(count: int) -> int:
    """Return the size of blocks for so many independent threads."""
    threads = _THREADS
    while threads > _FEWEST_THREADS and count < _BLOCKS * threads:
        threads //= 2
    return threads


RULE = ScheduleRule(
    name="tir-elementwise",
    devices=("cuda",),
    version=2,
    words=marked(
        "Kernels that compute each element by itself: neighbours on neighbouring threads, in "
        "vectors of 16 bytes where memory allows."
    ),
    schedule=schedule_elements,
    switch=Switch(name="tir-elementwise-schedule", alone=False),
    shared_switch=Switch(name="tir-schedules", alone=False),
)
