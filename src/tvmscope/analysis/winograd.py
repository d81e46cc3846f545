"""The cost of a 3x3 convolution, direct or Winograd; the compiler and a diagnosis rule use it.

Costs are multiplications per input and output channel.
"""

from __future__ import annotations

TILES = (2, 4)
"""Sides of the output tiles for which there are kernels."""
_WEIGHT_LOAD = 12
"""Loading a transformed weight from memory takes about as long as this many multiplications, so a
weight that is used fewer times costs this much."""
_TRANSFORM_SHARE = {2: 1.3, 4: 1.5}
"""The factor by which the two transforms increase the cost of the products."""


def direct(batch: int, rows: int, columns: int) -> float:
    """Return the cost of the direct convolution."""
    return 9.0 * max(batch * rows * columns, _WEIGHT_LOAD)


def cost(tile: int, batch: int, rows: int, columns: int) -> float:
    """Return the cost of Winograd with output tiles of `tile` x `tile`."""
    tiles = batch * -(-rows // tile) * -(-columns // tile)
    return float((tile + 2) ** 2 * max(tiles, _WEIGHT_LOAD) * _TRANSFORM_SHARE[tile])


def best_tile(batch: int, rows: int, columns: int) -> int:
    """Return the cheapest tile."""
    return min(TILES, key=lambda tile: cost(tile, batch, rows, columns))
