"""Marks the loops in which a kernel prefetches its next block of weights.

A model's weights come from main memory, and a core that waits for a block computes nothing. While a
kernel computes its image with one block, it prefetches the next, a part in each row. A rule marks
the loop, and `schedules.requests` inserts the prefetches into the finished function.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tvmscope.compiler.cost.ports import is_wide
from tvmscope.compiler.schedules.blocks import Block
from tvmscope.compiler.schedules.cpu.blocks import weight_bytes
from tvmscope.core.target import Target

if TYPE_CHECKING:
    from tvm import s_tir
    from tvm.s_tir.schedule import LoopRV

MARK = "tvmscope.prefetch"
"""The annotation of a loop; its value is a plan."""
_FAR_BYTES = 256 * 1024
"""Weights up to this size are still in a cache from the previous run."""
AT_ONCE = 16
"""Lines that a core can wait for at a time."""
LINE_BYTES = 64
_MOST_SUMS = 20
"""Vectors of sums of a tile whose prefetches are spread."""
_APART = 16
"""Additions to each sum between two prefetches."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The prefetches of each step of the marked loop: a part of its weights, some blocks ahead."""

    block_axis: int
    """The axis of the weights along which the next block lies."""
    blocks: int = 1
    """How many blocks a step reads; the prefetched ones are this many blocks ahead."""
    carry: bool = False
    """Whether after the axis's end comes the first block of the next step of the previous axis."""
    rows: int
    """Consecutive rows of the weights' last axis that a step reads from a block."""
    repeat: int
    """The block's iterator that repeats the step with the same weights."""
    step: int
    """The increment of that iterator."""
    repeats: int
    """The number of repetitions; each one prefetches another part."""
    once: int | None = None
    """Another iterator that repeats the step; it prefetches only in its first iteration."""
    spread: int = 1
    """The steps of the marked loop, if it is the innermost loop of a repetition: each prefetches
    the same number of lines."""


def far(sch: s_tir.Schedule, main: Block) -> bool:
    """Whether a block's weights are too large to stay in a cache."""
    return weight_bytes(sch, main) > _FAR_BYTES


def steps_at_once(step_bytes: int, repeats: int) -> int:
    """The steps of a reduction whose weights, prefetched in `repeats` parts, are no more lines in
    each than a core can wait for."""
    return AT_ONCE * repeats * LINE_BYTES // step_bytes


def spreads(sums: int, chunk: int, target: Target) -> bool:
    """Whether prefetches are placed between the additions of a chunk and not in front of them.

    More than `AT_ONCE` in a row make a core wait where it could compute;
    those cores notice that compute fast. The sums are written to memory at each prefetch, which
    costs too much for more than `_MOST_SUMS`.
    """
    return is_wide(target) and sums <= _MOST_SUMS and chunk % _APART == 0 and chunk > _APART


def mark(sch: s_tir.Schedule, loop: LoopRV, plan: Plan) -> None:
    """Mark `loop`: weights are to be prefetched in each step."""
    sch.annotate(loop, MARK, json.dumps(asdict(plan)))


def mark_spread(sch: s_tir.Schedule, loop: LoopRV, unroll: int, plan: Plan) -> None:
    """Mark the loop over a chunk of inputs, of which each step adds `unroll`: the prefetches of a
    repetition are spread over it."""
    outer, _ = sch.split(loop, factors=[None, max(1, _APART // unroll)])
    steps = int(sch.get(outer).extent)
    mark(sch, outer, replace(plan, spread=steps))
