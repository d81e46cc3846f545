"""Chooses the tile of a product on tensor cores with a small model of its time.

A block of threads runs steps of the sum. A step takes as long as the slowest of: its bytes through
the multiprocessor's share of the L2 cache, its arithmetic, and a load's latency over the stages
that hide it. `tvmscope.cuda.cost` has the same model for generated kernels, with what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from tvmscope.cuda.gpus import Gpu

EDGE = 16
"""The rows, columns and terms of a tensor-core tile."""
PAD = 8
"""Elements behind a row in shared memory, so that eight rows lie in different banks."""
_SHAPES = (
    (16, 32, (1, 2)),
    (16, 64, (1, 4)),
    (32, 32, (2, 2)),
    (32, 64, (2, 2)),
    (64, 32, (2, 2)),
    (64, 64, (2, 2)),
    (64, 128, (2, 2)),
    (128, 64, (2, 2)),
    (128, 128, (2, 4)),
)
"""Rows, columns, and how many warps share each of them."""
_TERMS = (32, 64, 128)
_PARTS = (1, 2, 4, 8, 16)
_MOST_STAGES = 4
_STEP_US = 0.06
_LOAD_US = 0.014
_MMA_US = 0.03
_ROUND_US = 0.7
_MMA_SHARE = 0.62
_BLOCK_US = 0.0004


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What a block of threads computes."""

    rows: int
    columns: int
    terms: int
    """Terms of the sum in one step."""
    warps: tuple[int, int]
    """Warps along the rows and along the columns."""
    stages: int
    """Steps in shared memory at once."""
    parts: int = 1
    """Blocks that share the sum of a tile; a second kernel adds their parts."""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps[0] * self.warps[1]

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block at most, with two bytes an element."""
        step = 2 * (self.rows * (self.terms + PAD) + max(self.columns, self.terms) * PAD)
        step += 2 * self.columns * self.terms
        return max(self.stages * step, 4 * self.rows * (self.columns + PAD))


@dataclass(frozen=True, kw_only=True)
class Work:
    """A product's sizes."""

    batch: int
    rows: int
    columns: int
    terms: int
    lanes: tuple[int, int] = (8, 8)
    """Elements that each operand loads at once."""


def choose(work: Work, gpu: Gpu) -> Tile:
    """Return the tile that the model expects to be fastest."""
    return min(legal(work, gpu), key=lambda tile: estimate_us(work, tile, gpu))


def legal(work: Work, gpu: Gpu) -> Iterator[Tile]:
    """Return every tile that a block of the GPU can hold."""
    for rows, columns, warps in _SHAPES:
        for terms in _TERMS:
            if terms > 32 and terms >= 2 * work.terms:
                continue
            for parts in _PARTS:
                steps = ceil(work.terms / (terms * parts))
                if parts > 1 and steps < 4:
                    continue
                tile = Tile(
                    rows=rows,
                    columns=columns,
                    terms=terms,
                    warps=warps,
                    stages=min(_MOST_STAGES, steps),
                    parts=parts,
                )
                if tile.shared_bytes <= gpu.block_shared_bytes // 2:
                    yield tile


def estimate_us(work: Work, tile: Tile, gpu: Gpu) -> float:
    """Return the expected time of all blocks, and of the kernel that adds parts."""
    blocks = work.batch * ceil(work.rows / tile.rows) * ceil(work.columns / tile.columns)
    blocks *= tile.parts
    steps = ceil(work.terms / (tile.terms * tile.parts))
    per_sm = ceil(blocks / gpu.sms)
    rounds = ceil(per_sm / _resident(tile, gpu))
    per_byte_us = max(per_sm / gpu.sm_bytes_per_us, blocks / gpu.l2_bytes_per_us)
    sides = (tile.rows, tile.columns)
    bytes_us = 2 * sum(sides) * tile.terms * per_byte_us
    side = min(*sides, 64) / 64
    rate = gpu.half_flops_per_us / gpu.sms * _MMA_SHARE * (0.4 + 0.6 * side)
    math_us = per_sm * 2 * tile.rows * tile.columns * tile.terms / rate
    loads = sum(s * tile.terms / n for s, n in zip(sides, work.lanes, strict=True)) / tile.threads
    latency_us = gpu.latency_us / max(1, min(tile.stages - 1, steps))
    issue_us = _STEP_US + _LOAD_US * loads + _MMA_US * tile.terms / EDGE
    alone_us = rounds * max(latency_us, issue_us)
    us = gpu.latency_us + max(max(bytes_us, math_us) * steps, alone_us * (steps - 1))
    us += 2 * tile.rows * tile.columns * per_byte_us + (rounds - 1) * _ROUND_US
    us += _BLOCK_US * blocks
    if tile.parts > 1:
        stored = 4 * work.batch * work.rows * work.columns * tile.parts
        us += gpu.launch_us + 2 * stored / gpu.l2_bytes_per_us + gpu.latency_us
    return us


def _resident(tile: Tile, gpu: Gpu) -> int:
    """Return how many blocks a multiprocessor holds at once."""
    sums = tile.rows * tile.columns / tile.threads
    return max(
        1,
        min(
            gpu.sm_shared_bytes // (tile.shared_bytes + 1024),
            int(65536 // ((1.3 * sums + 48) * tile.threads)),
            gpu.sm_warps * 32 // tile.threads,
            gpu.sm_blocks,
        ),
    )
