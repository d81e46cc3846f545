"""The model behind every CPU schedule: how many columns fit the registers.

A kernel keeps a tile of `columns` x one channel block in vector registers. Each step of the
reduction loads the block's weights once and multiplies them with one broadcast value per column, so
more columns mean more arithmetic per load; too many spill. Columns that do not divide the row are
computed into a wider row and cropped: a guard inside the loop would cost far more.
"""

from __future__ import annotations

from tvmscope.core.target import Target

CHANNEL_BLOCK = 16
"""Channels per block: one AVX-512 register, two AVX ones, four NEON ones of float32."""
NEAR_BYTES = 1 << 20
"""The usual size of a core's second-level cache."""
UNROLL = 4
"""Steps of a matmul's reduction that are unrolled."""
_LEAST = 16
_MIN_COLUMNS = 4
"""Fewer independent sums than this cannot hide the latency of a fused multiply-add."""


def vector_registers(target: Target) -> int:
    """Return how many vector registers the instruction set has."""
    if "avx512f" in target.features or "neon" in target.features:
        return 32
    return 16


def block_registers(target: Target, bits: int = 32) -> int:
    """Return the registers that one channel block takes."""
    return max(1, CHANNEL_BLOCK * bits // target.vector_bits)


def most_columns(target: Target) -> int:
    """Return the widest tile that leaves registers for the weights and a broadcast value."""
    per_block = block_registers(target)
    free = vector_registers(target) - per_block - 2
    return max(_MIN_COLUMNS, min(free // per_block, 14))


def columns(extent: int, target: Target) -> int:
    """Return the tile width for a row of `extent`: the least padding first, then the widest."""
    return ranked_columns(extent, target)[0]


def ranked_columns(extent: int, target: Target) -> list[int]:
    """Return all sensible tile widths for a row of `extent`, the most promising first."""
    most = most_columns(target)
    whole = [max(1, extent)] if extent <= most else []
    widths = range(_MIN_COLUMNS, min(most, extent) + 1)

    def cost(width: int) -> float:
        padding = -extent % width
        # A few padded columns cost less than a tile that is much narrower.
        return (extent + padding) * (1 + 1 / width)

    others = sorted((w for w in widths if w not in whole), key=lambda w: (cost(w), -w))
    return whole + others


def padded(extent: int, target: Target, width: int | None = None) -> int:
    """Return the row length that is computed, in tiles of `width` if it is given."""
    width = width or columns(extent, target)
    return -(-extent // width) * width


def panel(target: Target) -> int:
    """Return the columns of a matmul's right operand packed together: two blocks if they fit."""
    return CHANNEL_BLOCK * (2 if vector_registers(target) >= 32 * block_registers(target) else 1)


def rows(extent: int, target: Target) -> int:
    """Return the rows of a matmul's register tile: the least padding first, then the tallest.

    More than ten rows do not help, and long rows at large strides fall into the same cache sets.
    """
    return ranked_rows(extent, target)[0]


def ranked_rows(extent: int, target: Target) -> list[int]:
    """Return all sensible tile heights for a matmul of `extent` rows, the most promising first."""
    blocks = panel(target) // CHANNEL_BLOCK * block_registers(target)
    most = max(_MIN_COLUMNS, min((vector_registers(target) - blocks - 2) // blocks, 10))
    whole = [max(1, extent)] if extent <= most else []
    heights = (r for r in range(most // 2 + 1, min(most, extent) + 1) if r not in whole)
    return whole + sorted(heights, key=lambda r: (-extent % r, -r))


def chunk(depth: int, most: int) -> int:
    """Return the largest part of a reduction of at most `most` steps that divides it; if there is
    none, the smallest for which reading and writing the sums each time is worth it."""
    found = [c for c in range(1, depth + 1) if depth % c == 0 and c % UNROLL == 0 and c >= _LEAST]
    return max((c for c in found if c <= most), default=min(found, default=depth))


def padded_rows(extent: int, target: Target, height: int | None = None) -> int:
    """Return the number of rows that is computed, in tiles of `height` if it is given."""
    height = height or rows(extent, target)
    return -(-extent // height) * height
