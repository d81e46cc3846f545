"""Chooses the tile of a dense convolution's result that is kept in registers, by the core's ports.

A tile is `blocks` of channels x `rows` x `columns` of the image. There are three forms:
- `14`: a row's columns x one block, as `schedules.cpu.conv2d` computes whole rows
- `2x1x14`: blocks x rows x columns
- `2x14`: blocks x pixels of a 1x1 convolution, numbered across the ends of rows
The first suffices for one multiply-add a cycle on vectors as wide as a block; all other cores use
the fastest of the others according to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.ports import Ports, ports
from tvmscope.core.target import Target

PARAMETER = "tile"
"""The tuning parameter that names a tile."""
_MOST_ROWS, _MOST_COLUMNS, _MOST_BLOCKS = 4, 28, 8
_MOST_CLAMPED = 6
"""Pixels of a tile that may lie beyond the image's end: each then needs its own address."""
_L2_BYTES_PER_CYCLE = 128
"""Twice the second-level cache's best rate: half of the transfer overlaps with arithmetic."""
_IDLE = 0.25
"""The share of the cycles that the busiest port leaves to the others which is lost nevertheless."""
_COPY_BYTES_PER_CYCLE = 8
_CLAMPED = 0.02
"""The relative cost of pixels with their own addresses."""
_SKIPS = 0.1
"""The relative cost of a 1x1 convolution's stride: the skipped pixels are fetched with the others,
and those of a tile share sets of the cache."""
_STREAM = 0.015
"""The relative cost of writing to another block of channels at the same time: the blocks of an
image are often whole pages apart, and then share sets of the cache."""
_MOST_MORE = 0.01
_NARROW_SLACK = 4
"""Registers that LLVM fills ahead of time if a block is four vectors."""
_RANKED = 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The properties of a convolution on which its tile depends."""

    blocks: int
    """Blocks of output channels in each group."""
    groups: int
    channels: int
    """Input channels of a group."""
    kernel: tuple[int, int]
    rows: int
    columns: int
    batch: int
    stride: int
    """Input pixels per output pixel, across and down."""
    flattens: bool
    """Whether the image can be treated as one row: a 1x1 kernel, without padding."""
    copies: bool
    """Whether the image is copied anyway, for its padding."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """The part of the result that is kept in registers."""

    blocks: int = 1
    rows: int = 1
    columns: int
    flat: bool = False
    row: bool = False
    """Whether whole rows are computed, one tile after the other."""

    @property
    def name(self) -> str:
        """The tile's name in annotations and tuning records."""
        if self.row:
            return str(self.columns)
        if self.flat:
            return f"{self.blocks}x{self.columns}"
        return f"{self.blocks}x{self.rows}x{self.columns}"

    @property
    def pixels(self) -> int:
        """Of one block."""
        return self.rows * self.columns

    def covers(self, shape: Shape) -> bool:
        """Whether a convolution can be computed in such tiles."""
        return shape.blocks % self.blocks == 0 and (shape.flattens or not self.flat)

    def computed(self, shape: Shape) -> tuple[int, int]:
        """Return the numbers of rows and columns that whole tiles compute."""
        rows, columns = shape.rows, shape.columns
        if self.flat:
            return 1, _divisible(-(-rows * columns // self.columns)) * self.columns
        return -(-rows // self.rows) * self.rows, -(-columns // self.columns) * self.columns


def _divisible(count: int) -> int:
    """Round `count` up a little, so that it can be divided among cores and caches."""
    for unit in (16, 8, 4, 2):
        more = -count % unit
        if more <= count * _MOST_MORE:
            return count + more
    return count


def named(name: str) -> Tile:
    """The tile of a name."""
    sizes = [int(part) for part in name.split("x")]
    if len(sizes) == 1:
        return Tile(columns=sizes[0], row=True)
    if len(sizes) == 2:
        return Tile(blocks=sizes[0], columns=sizes[1], flat=True)
    return Tile(blocks=sizes[0], rows=sizes[1], columns=sizes[2])


def by_rows(target: Target) -> bool:
    """Whether a row's columns x one block feed the multipliers: a block is a vector, and one
    multiply-add begins in a cycle."""
    whole = tiles.block_registers(target) == 1
    return whole and ports(target).fmas(target.vector_bits) <= 1


def ranked(shape: Shape, target: Target) -> list[Tile]:
    """Return tiles for a convolution, the most promising first."""
    rows = [Tile(columns=w, row=True) for w in tiles.ranked_columns(shape.columns, target)]
    if by_rows(target):
        return rows
    found = [tile for tile in _possible(shape) if _fits(tile, target)]
    found.sort(key=lambda tile: (_cycles(tile, shape, target), -tile.pixels, not tile.flat))
    return found[:_RANKED] or rows


def product_blocks(count: int, columns: int, target: Target) -> int:
    """Return how many of `count` blocks a product of `columns` at a time keeps in registers."""
    if by_rows(target):
        return 1
    found = [Tile(blocks=b, columns=columns) for b in range(1, _MOST_BLOCKS + 1) if count % b == 0]
    fitting = [tile for tile in found if _fits(tile, target)]
    each = lambda tile: (step_cycles(tile, target) / tile.blocks, tile.blocks)  # noqa: E731
    return min(fitting, key=each).blocks if fitting else 1


def step_cycles(tile: Tile, target: Target) -> float:
    """Return the cycles of one step of the reduction, with all data in the first-level cache."""
    core, bits = ports(target), target.vector_bits
    vectors = tile.blocks * tiles.block_registers(target)
    busy = tile.pixels * vectors / core.fmas(bits)
    loads = core.load_cycles(vectors, tile.pixels, bits)
    return max(busy, loads, core.latency) + _IDLE * (loads + core.latency)


def _fits(tile: Tile, target: Target) -> bool:
    """Whether the registers suffice for the sums, the reused operands, and one more."""
    vectors = tile.blocks * tiles.block_registers(target)
    operands = min(tile.pixels, vectors) + 1
    room = tiles.vector_registers(target) - int(vectors > tile.pixels)
    if target.vector_bits == 128:
        room -= _NARROW_SLACK
    return tile.pixels * vectors + operands <= room


def _possible(shape: Shape) -> list[Tile]:
    blocks = [b for b in range(1, _MOST_BLOCKS + 1) if shape.blocks % b == 0]
    columns = range(1, min(shape.columns, _MOST_COLUMNS) + 1)
    rows = range(1, min(shape.rows, _MOST_ROWS) + 1)
    found = [Tile(blocks=b, rows=r, columns=c) for b in blocks for r in rows for c in columns]
    if shape.flattens:
        pixels = shape.rows * shape.columns
        flat = range(1, min(pixels, _MOST_COLUMNS) + 1)
        widths = [w for w in flat if pixels % w == 0 or w <= _MOST_CLAMPED]
        found += [Tile(blocks=b, columns=w, flat=True) for b in blocks for w in widths]
    return found


def _cycles(tile: Tile, shape: Shape, target: Target) -> float:
    """Return the cycles of the whole convolution, on all cores."""
    core, computed = ports(target), tile.computed(shape)
    steps = shape.channels * prod(shape.kernel)
    weights = 4 * tiles.CHANNEL_BLOCK * tile.blocks * steps
    data = 4 * tile.pixels * shape.channels
    moved = _moved_bytes(core, weights, data) / _L2_BYTES_PER_CYCLE
    clamped = tile.flat and computed[1] != shape.rows * shape.columns
    skips = not tile.flat and shape.flattens and shape.stride > 1
    slower = 1 + _STREAM * tile.blocks + _CLAMPED * clamped + _SKIPS * skips
    each = slower * steps * step_cycles(tile, target) + moved
    count = prod(computed) // tile.pixels * (shape.blocks // tile.blocks) * shape.groups
    turns = -(-shape.batch * count // target.cores)
    copied = _copied_pixels(tile, shape) * shape.channels * shape.groups * shape.batch
    return turns * each + 4 * copied / _COPY_BYTES_PER_CYCLE / target.cores


def _copied_pixels(tile: Tile, shape: Shape) -> int:
    """Return the pixels copied because of the tile: those that a stride keeps, or all and more."""
    if tile.flat:
        return shape.rows * shape.columns if shape.stride > 1 else 0
    computed = tile.computed(shape)
    whole = shape.copies or computed == (shape.rows, shape.columns)
    return 0 if whole else prod(computed) * shape.stride


def _moved_bytes(core: Ports, weights: int, data: int) -> int:
    """Return the bytes that a tile reads beyond the first-level cache: either the weights stay
    there from the previous tile, or the data do."""
    room = core.l1_bytes * 7 // 8
    return min(
        data + (0 if weights + data <= room else weights),
        weights + (0 if weights + data <= room else data),
    )
