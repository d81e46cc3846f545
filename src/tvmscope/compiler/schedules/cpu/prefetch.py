"""Marks the loops in which a kernel asks for its next block of weights.

A model's weights come from main memory, and a core that waits for a block computes nothing. While
a kernel passes over its image with one block, it asks for the next, a part in each row. A rule
marks the loop, and `schedules.requests` puts the requests into the finished function.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tvmscope.compiler.schedules.cpu.blocks import Block, weight_bytes

if TYPE_CHECKING:
    from tvm import s_tir
    from tvm.s_tir.schedule import LoopRV

MARK = "tvmscope.prefetch"
"""The annotation of a loop that holds a plan."""
_FAR_BYTES = 256 * 1024
"""Weights up to this size are still in a cache from the run before."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What each step of the marked loop asks for: a part of what it reads, blocks further on."""

    block_axis: int
    """The axis of the weights along which the next block lies."""
    blocks: int = 1
    """How many blocks a step reads; the next ones are as many further on."""
    carry: bool = False
    """Whether behind that axis' end comes the first block of the next step of the axis before."""
    rows: int
    """Rows of the weights' last axis that a step reads of a block, one behind the other."""
    repeat: int
    """The block's iterator that repeats this with the same weights,"""
    step: int
    """by how much it grows each time, and"""
    repeats: int
    """how often: each time asks for another part."""
    once: int | None = None
    """Another iterator that repeats it, which asks at its beginning only."""


def far(sch: s_tir.Schedule, main: Block) -> bool:
    """Whether a block's weights are too large to stay in a cache."""
    return weight_bytes(sch, main) > _FAR_BYTES


def mark(sch: s_tir.Schedule, loop: LoopRV, plan: Plan) -> None:
    """Remember that weights are to be fetched in each step of `loop`."""
    sch.annotate(loop, MARK, json.dumps(asdict(plan)))
