"""Selects the tile of a block, multiplies tiles, and sums split-K parts inside one kernel."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_of(pid, TILES_M: tl.constexpr, TILES_N: tl.constexpr, GROUP: tl.constexpr):
    """Tile (row, column) of block `pid`: `GROUP` tile rows are walked column by column, so that
    blocks that run at the same time share rows and columns in the L2 cache."""
    if GROUP == 1 or TILES_M == 1:
        return pid // TILES_N, pid % TILES_N
    if GROUP >= TILES_M:
        return pid % TILES_M, pid // TILES_M
    band = pid // (GROUP * TILES_N)
    first = band * GROUP
    rows = min(TILES_M - first, GROUP)
    inside = pid % (GROUP * TILES_N)
    return first + inside % rows, inside // rows


@triton.jit
def share_part(part, workspace, counters, tile, split,
               TILE_M: tl.constexpr, TILE_N: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """Store this block's part and count it; true in the block that came last.

    The barrier orders the stores of all threads before the one atomic, which releases them.
    """
    SIZE: tl.constexpr = TILE_M * TILE_N
    inside = tl.arange(0, TILE_M)[:, None] * TILE_N + tl.arange(0, TILE_N)[None, :]
    tl.store(workspace + (tile * SPLIT + split) * SIZE + inside, part)
    tl.debug_barrier()
    return tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1


@triton.jit
def sum_parts(workspace, counters, tile,
              TILE_M: tl.constexpr, TILE_N: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """Sum all parts of a tile in their fixed order, in whichever block came last; reset the counter
    for the next run. The loads skip the L1 cache, which may hold old values."""
    SIZE: tl.constexpr = TILE_M * TILE_N
    inside = tl.arange(0, TILE_M)[:, None] * TILE_N + tl.arange(0, TILE_N)[None, :]
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(workspace + (tile * SPLIT + part) * SIZE + inside, cache_modifier=".cg")
    tl.store(counters + tile, 0)
    return total


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):
    """`total` and the product of two tiles; `ieee` multiplies in float32 and beside the tensor
    cores, halves too."""
    if PRECISION == "ieee":
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)
