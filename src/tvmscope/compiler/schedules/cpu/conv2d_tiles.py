"""Dense convolution in register tiles of several blocks of channels x rows x columns.

parallel  shares: image x channels x rows, or pixels
  pixels    groups of tiles, whose data stay in the second-level cache
    channels  tiles, whose weights stay in the first-level cache while the group is computed
      pixels    tiles of the group
        kh, kw, ic  the reduction; the sums stay in registers
          pixels, blocks, 16  unrolled, vectorised channels
        epilogue    bias, addition, activation on the finished tile, still in registers

If the weights of a tile overflow the first-level cache, the reduction is done in chunks, and the
sums of some tiles wait in the cache in between. The shares are chosen so that all cores have equal
work and few of them read the same data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.dense_tiles import Tile
from tvmscope.compiler.cost.ports import Ports, ports
from tvmscope.compiler.manifest.rule import Space
from tvmscope.compiler.schedules.blocks import Block
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    inline_epilogue,
    schedule_copies,
    vectorize_last,
    weight_bytes,
)
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target

if TYPE_CHECKING:
    from tvm import s_tir

_UNROLL = 4
_ROW, _COLUMN = 2, 3
"""The convolution's iterators over the image."""


@dataclass(frozen=True, kw_only=True)
class _Grid:
    """A convolution in tiles."""

    batch: int
    channels: int
    rows: int
    columns: int
    """Tiles along each axis."""
    inputs: int
    taps: int
    """Steps of the reduction."""

    @property
    def pixels(self) -> int:
        """Tiles of one image and block of channels."""
        return self.rows * self.columns


def schedule_tiles(sch: s_tir.Schedule, conv: Block, tile: Tile, target: Target) -> s_tir.Schedule:
    """Schedule the tiles. Parameters follow from the shapes unless the block has them: the tiles of
    pixels in a `group`, the input channels of a `chunk`, how many of them are `unroll`ed, and
    whether the weights of the next tiles are `prefetch`ed."""
    epilogue = inline_epilogue(sch, conv)
    schedule_copies(sch, before=conv)
    if tile.flat:
        width = int(sch.get(sch.get_loops(epilogue)[_COLUMN]).extent)
        sch.transform_block_layout(epilogue, lambda n, o, h, w, b: (n, o, h * width + w, b))
    n, oc, oh, ow, lanes, ic, kh, kw = sch.get_loops(conv)
    grid = _grid(sch, conv, tile)
    plan = _plan(sch, conv, grid, tile, target)
    shares, (rows, columns), (some_rows, some_columns) = plan.shares, plan.group, plan.waiting
    oc_p, oc_t, oc_i = sch.split(oc, factors=[shares[0], None, tile.blocks])
    oh_p, oh_g, oh_s, oh_t, oh_i = sch.split(
        oh, factors=[shares[1], None, rows // some_rows, some_rows, tile.rows]
    )
    ow_p, ow_g, ow_s, ow_t, ow_i = sch.split(
        ow, factors=[shares[2], None, columns // some_columns, some_columns, tile.columns]
    )
    ic_o, ic_i, ic_u = sch.split(ic, factors=[None, plan.chunk // plan.unroll, plan.unroll])
    wide = tile.blocks * tiles.block_registers(target) > tile.pixels
    inside = (oc_i, oh_i, ow_i) if wide else (oh_i, ow_i, oc_i)
    whole = plan.chunk == grid.inputs
    steps = (oh_t, ow_t, ic_o) if whole else (ic_o, oh_t, ow_t)
    around = (n, oc_p, oh_p, ow_p, oh_g, ow_g, oc_t, oh_s, ow_s)
    sch.reorder(*around, *steps, kh, kw, ic_i, ic_u, *inside, lanes)
    sch.reverse_compute_at(epilogue, ow_t if whole else ow_s, preserve_unit_loops=True)
    sch.parallel(sch.fuse(n, oc_p, oh_p, ow_p))
    for loop in (ic_u, *inside):
        sch.unroll(loop)
    sch.vectorize(lanes)
    if whole:
        sch.set_scope(conv, 0, "local")
        _finish(sch, epilogue, tile)
    else:
        vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, ic_o)
    if plan.prefetch:
        following = _next_weights(grid, plan, tile)
        sums = tile.pixels * tile.blocks * tiles.block_registers(target)
        if grid.taps == 1 and prefetch.spreads(sums, plan.chunk, target):
            prefetch.mark_spread(sch, ic_i, plan.unroll, following)
        else:
            prefetch.mark(sch, steps[-1], following)
    return sch


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The decisions about the loops."""

    shares: tuple[int, int, int]
    """Into how many parts channels, rows and columns are divided among the cores."""
    group: tuple[int, int]
    """Rows and columns of tiles that are computed with the weights of one tile."""
    waiting: tuple[int, int]
    """The tiles among them whose sums wait for the next chunk."""
    chunk: int
    unroll: int
    prefetch: bool


def _grid(sch: s_tir.Schedule, conv: Block, tile: Tile) -> _Grid:
    n, oc, oh, ow, _, ic, kh, kw = (int(sch.get(loop).extent) for loop in sch.get_loops(conv))
    return _Grid(
        batch=n,
        channels=oc // tile.blocks,
        rows=oh // tile.rows,
        columns=ow // tile.columns,
        inputs=ic,
        taps=kh * kw,
    )


def _plan(sch: s_tir.Schedule, conv: Block, grid: _Grid, tile: Tile, target: Target) -> _Plan:
    params, core = params_of(sch, conv), ports(target)
    shares = _shares(sch, conv, grid, target)
    own = grid.rows // shares[1], grid.columns // shares[2]
    size = int_of(params, "group") or _group(sch, conv, grid, shares, core)
    group = _part(own, size)
    chunk = int_of(params, "chunk") or _chunk(grid, tile, core)
    if grid.inputs % chunk or prod(group) == 1:
        chunk = grid.inputs
    unroll = int_of(params, "unroll") or _UNROLL
    each = 4 * tiles.CHANNEL_BLOCK * tile.blocks * tile.pixels
    return _Plan(
        shares=shares,
        group=group,
        waiting=group if chunk == grid.inputs else _part(group, core.l1_bytes // 4 // each),
        chunk=chunk,
        unroll=unroll if chunk % unroll == 0 else 1,
        prefetch=bool(params.get("prefetch", prefetch.far(sch, conv))),
    )


def _part(whole: tuple[int, int], most: int) -> tuple[int, int]:
    """Return at most `most` tiles of some rows: whole rows of tiles, or a part of one row."""
    columns = _largest(whole[1], most)
    return (_largest(whole[0], most // columns) if columns == whole[1] else 1), columns


def _group(
    sch: s_tir.Schedule, conv: Block, grid: _Grid, shares: tuple[int, int, int], core: Ports
) -> int:
    """Return how many tiles are computed before the next weights: all if their data stay in the
    second-level cache (otherwise the weights are read from outside again); else as many as stay."""
    count = grid.pixels // (shares[1] * shares[2])
    data = _data_bytes(sch, conv) // grid.batch // (shares[1] * shares[2])
    weights = weight_bytes(sch, conv) // shares[0]
    near = core.l2_bytes // 2
    if data <= near or weights > near:
        return count
    return max(1, count * (near // 2) // data)


def _chunk(grid: _Grid, tile: Tile, core: Ports) -> int:
    """Return the input channels whose weights stay in the first-level cache, beside the data."""
    step = 4 * tiles.CHANNEL_BLOCK * tile.blocks * grid.taps
    if grid.inputs * (step + 4 * tile.pixels) <= core.l1_bytes * 7 // 8:
        return grid.inputs
    blocks = grid.inputs // tiles.CHANNEL_BLOCK
    if grid.inputs % tiles.CHANNEL_BLOCK:
        return grid.inputs
    most = core.l1_bytes // 2 // (step * tiles.CHANNEL_BLOCK)
    return _largest(blocks, most) * tiles.CHANNEL_BLOCK


def _largest(count: int, most: int) -> int:
    """Return the largest divisor up to `most`, or 1."""
    return max(n for n in _divisors(count) if n <= max(1, most))


def _finish(sch: s_tir.Schedule, epilogue: Block, tile: Tile) -> None:
    """Unroll the epilogue's last loops, which are a tile, unless it spreads the result of a small
    image over a larger one."""
    *outer, lanes = sch.get_loops(epilogue)[-4 if tile.flat else -5 :]
    left = tile.blocks * tile.pixels
    for loop in outer:
        extent = int(sch.get(loop).extent)
        if extent <= left:
            sch.unroll(loop)
            left //= extent
    sch.vectorize(lanes)


def _shares(sch: s_tir.Schedule, conv: Block, grid: _Grid, target: Target) -> tuple[int, int, int]:
    """Return into how many groups of channels, rows and columns the work is divided."""
    read, weights = _data_bytes(sch, conv), weight_bytes(sch, conv)

    def cost(groups: tuple[int, int, int]) -> tuple[int, float, int]:
        tasks = grid.batch * prod(groups)
        turns = -(-tasks // target.cores)
        longest = turns * (grid.channels * grid.pixels // prod(groups))
        return longest, turns * (weights / groups[0] + read / (groups[1] * groups[2])), tasks

    return min(_divisions(grid), key=cost)


def _divisions(grid: _Grid) -> Iterator[tuple[int, int, int]]:
    """Yield equal divisions; columns are divided only if there is one row."""
    for channels in _divisors(grid.channels):
        for rows in _divisors(grid.rows):
            for columns in _divisors(grid.columns) if grid.rows == 1 else [1]:
                yield channels, rows, columns


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def _data_bytes(sch: s_tir.Schedule, conv: Block) -> int:
    data = sch.get(conv).reads[0].source
    return prod(int(d) for d in data.shape) * int(data.dtype.bits) // 8


def _next_weights(grid: _Grid, plan: _Plan, tile: Tile) -> prefetch.Plan:
    flat = grid.rows == 1
    return prefetch.Plan(
        block_axis=0,
        blocks=tile.blocks,
        rows=plan.chunk * grid.taps,
        repeat=_COLUMN if flat else _ROW,
        step=tile.columns if flat else tile.rows,
        repeats=plan.group[1] if flat else plan.group[0],
        once=None if flat else _COLUMN,
    )


def space_of_tiles(sch: s_tir.Schedule, conv: Block, tile: Tile, target: Target) -> Space:
    """Return the values of the parameters, the rule's own values first."""
    grid = _grid(sch, conv, tile)
    plan = _plan(sch, conv, grid, tile, target)
    sizes = (c for c in (16, 32, 64, 128, 256, grid.inputs) if grid.inputs % c == 0)
    return {
        "group": default_first(prod(plan.group), (1, grid.pixels // prod(plan.shares[1:]))),
        "chunk": default_first(plan.chunk, sizes),
        "unroll": default_first(_UNROLL, (1, 2, 8, 16)),
        "prefetch": (1, 0) if plan.prefetch else (0, 1),
    }
