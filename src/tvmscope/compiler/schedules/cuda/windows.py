"""Pooling and depthwise convolution: windows of neighbours whose channels lie beside each other.

blocks, threads   all elements of the result, neighbours on neighbouring threads
  window          unrolled, padding and all that is before it computed on the way
    vector        of channels, whose results stay in registers
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule, static_extents
from tvmscope.compiler.schedules.cuda.elements import distribute, is_injective
from tvmscope.compiler.schedules.cuda.vectors import depends, widest_vector
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_MOST_TERMS, _FEW_TERMS = 64, 25
"""A thread sums a whole window, and a large one only where other threads keep the GPU busy."""
_BUSY_THREADS = 16384


def schedule_windows(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes one small reduction that keeps the axis along which its operands lie in memory."""
    from tvm.s_tir import ScheduleError

    sch = new_schedule(func)
    found = only_reduction(sch)
    if found is None:
        return None
    main, others = found
    last = [b for b in all_blocks(sch) if not sch.get_consumers(b)]
    if len(last) != 1:
        return None
    if sch.get(last[0]).name_hint == sch.get(main).name_hint:
        sch.cache_write(main, 0, "local")
        last = list(sch.get_consumers(main))
    name = sch.get(last[0]).name_hint
    try:
        for block in others:
            if sch.get(block).name_hint != name:
                sch.compute_inline(block)
    except ScheduleError:
        return None
    extents = static_extents(sch, main)
    lanes = 1 if extents is None else _lanes(sch, main, last[0])
    terms = _terms(sch, main)
    if extents is None or lanes == 1 or terms > _MOST_TERMS:
        return None
    if terms > _FEW_TERMS and prod(extents) // terms // lanes < _BUSY_THREADS:
        return None
    return _schedule(sch, main, last[0], lanes)


def only_reduction(sch: s_tir.Schedule) -> tuple[Block, list[Block]] | None:
    """Return the only reduction and all other blocks, if those compute element by element."""
    blocks = all_blocks(sch)
    reductions = [b for b in blocks if sch.get(b).init is not None]
    others = [b for b in blocks if sch.get(b).init is None]
    if len(reductions) != 1 or not all(is_injective(sch, b) for b in others):
        return None
    return reductions[0], others


def _terms(sch: s_tir.Schedule, main: Block) -> int:
    from tvm.tirx import IterVar

    node = sch.get(main)
    return prod(int(v.dom.extent) for v in node.iter_vars if v.iter_type == IterVar.CommReduce)


def _lanes(sch: s_tir.Schedule, main: Block, last: Block) -> int:
    """Return the length of vectors along the last axis that is not summed, for both blocks."""
    from tvm.tirx import IterVar

    node, end = sch.get(main), sch.get(last)
    kept = [v for v in node.iter_vars if v.iter_type == IterVar.DataPar]
    sizes = [int(v.dom.extent) for v in kept]
    if not kept or [int(v.dom.extent) for v in end.iter_vars] != sizes:
        return 1
    return gcd(
        widest_vector(node, kept[-1], gathers=True),
        widest_vector(end, end.iter_vars[-1]),
        sizes[-1],
    )


def _schedule(sch: s_tir.Schedule, main: Block, last: Block, lanes: int) -> s_tir.Schedule:
    from tvm.tirx import IterVar

    axes = [v.iter_type == IterVar.CommReduce for v in sch.get(main).iter_vars]
    loops = list(zip(sch.get_loops(main), axes, strict=True))
    summed = [loop for loop, reduced in loops if reduced]
    thread, vector = distribute(sch, [loop for loop, reduced in loops if not reduced], lanes)
    sch.reorder(thread, *summed, vector)
    sch.set_scope(main, 0, "local")
    gathered = _gathered(sch, main)
    sch.reverse_compute_at(last, thread, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(last)[-1])
    for index in gathered:
        copy = sch.cache_read(main, index, "local")
        sch.compute_at(copy, summed[-1])
        sch.unroll(sch.get_loops(copy)[-1])
    sch.vectorize(vector)
    sch.decompose_reduction(main, summed[0])
    for loop in summed:
        sch.unroll(loop)
    return sch


def _gathered(sch: s_tir.Schedule, main: Block) -> list[int]:
    """Return which operands do not lie in vectors: they are loaded element by element."""
    from tvm.tirx import IterVar

    node = sch.get(main)
    axis = [v for v in node.iter_vars if v.iter_type == IterVar.DataPar][-1]
    found = []
    for index, read in enumerate(node.reads):
        last = read.region[-1].min
        moves = any(depends(r.min, axis.var) for r in read.region)
        if moves and not depends(last, axis.var):
            found.append(index)
    return found


RULE = ScheduleRule(
    name="tir-windows",
    devices=("cuda",),
    version=2,
    words=marked(
        "Pooling and depthwise convolutions: a vector of channels per thread, which computes its "
        "whole window in registers."
    ),
    schedule=schedule_windows,
    switch=Switch(name="tir-windows-schedule", alone=False),
    shared_switch=Switch(name="tir-schedules", alone=False),
)
