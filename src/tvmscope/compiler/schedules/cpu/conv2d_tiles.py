"""Dense convolution in register tiles of several blocks of channels x rows x columns.

parallel    shares: image x groups of channels x groups of rows, or of pixels
  oc, oh, ow  tiles, those of the channels outermost while their weights fit the cache, or innermost
    kh, kw, ic  the reduction; the sums stay in registers
      pixels, blocks, 16  unrolled, vectorised channels
    epilogue    bias, addition, activation on the finished tile, still in registers

A core's share is chosen so that all have equally much to do and read little of what the others do.
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
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    Block,
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
ORDERS = ("channels", "pixels")


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
    """Parameters, which follow from the shapes unless the block carries them: the `order` of a
    share's tiles (`channels` or `pixels` outermost), the input channels of a `chunk`, how many of
    them are `unroll`ed, and whether the weights of the next tiles are `prefetch`ed."""
    epilogue = inline_epilogue(sch, conv)
    schedule_copies(sch, before=conv)
    if tile.flat:
        width = int(sch.get(sch.get_loops(epilogue)[_COLUMN]).extent)
        sch.transform_block_layout(epilogue, lambda n, o, h, w, b: (n, o, h * width + w, b))
    n, oc, oh, ow, lanes, ic, kh, kw = sch.get_loops(conv)
    grid = _grid(sch, conv, tile)
    plan = _plan(sch, conv, grid, tile, target)
    oc_g, oc_t, oc_i = sch.split(oc, factors=[plan.groups[0], None, tile.blocks])
    oh_g, oh_s, oh_t, oh_i = sch.split(oh, factors=[plan.groups[1], None, plan.rows, tile.rows])
    ow_g, ow_s, ow_t, ow_i = sch.split(
        ow, factors=[plan.groups[2], None, plan.columns, tile.columns]
    )
    ic_o, ic_i, ic_u = sch.split(ic, factors=[None, plan.chunk // plan.unroll, plan.unroll])
    wide = tile.blocks * tiles.block_registers(target) > tile.pixels
    inside = (oc_i, oh_i, ow_i) if wide else (oh_i, ow_i, oc_i)
    whole = plan.chunk == grid.inputs
    if plan.order == ORDERS[0]:
        around = (oc_t, oh_s, ow_s, *((oh_t, ow_t, ic_o) if whole else (ic_o, oh_t, ow_t)))
    else:
        around = (oh_s, ow_s, oh_t, ow_t, oc_t, ic_o)
    sch.reorder(n, oc_g, oh_g, ow_g, *around, kh, kw, ic_i, ic_u, *inside, lanes)
    finished = around[-2] if whole else ow_s
    sch.reverse_compute_at(epilogue, finished, preserve_unit_loops=True)
    sch.parallel(sch.fuse(n, oc_g, oh_g, ow_g))
    for loop in (ic_u, *inside):
        sch.unroll(loop)
    sch.vectorize(lanes)
    if whole:
        sch.set_scope(conv, 0, "local")
        _finish(sch, epilogue)
    else:
        vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, ic_o)
    if plan.prefetch:
        prefetch.mark(sch, around[-1], _next_weights(grid, plan, tile))
    return sch


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is decided about the loops."""

    groups: tuple[int, int, int]
    """Into how many parts channels, rows and columns are divided among the cores."""
    order: str
    chunk: int
    rows: int
    columns: int
    """Tiles whose sums wait in the cache for the next chunk."""
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
    groups = _shares(sch, conv, grid, target)
    order = str(params.get("order", _order(sch, conv, grid, groups, core)))
    chunk = int_of(params, "chunk") or _chunk(grid, tile, core)
    if order != ORDERS[0] or grid.inputs % chunk:
        chunk = grid.inputs
    rows, columns = grid.rows // groups[1], grid.columns // groups[2]
    if chunk < grid.inputs:
        most = core.l1_bytes // 4 // (4 * tiles.CHANNEL_BLOCK * tile.blocks * tile.pixels)
        columns = _largest(columns, most)
        rows = _largest(rows, most // columns)
    unroll = int_of(params, "unroll") or _UNROLL
    return _Plan(
        groups=groups,
        order=order,
        chunk=chunk,
        rows=rows,
        columns=columns,
        unroll=unroll if chunk % unroll == 0 else 1,
        prefetch=bool(params.get("prefetch", order == ORDERS[0] and prefetch.far(sch, conv))),
    )


def _chunk(grid: _Grid, tile: Tile, core: Ports) -> int:
    """Input channels whose weights stay in the first-level cache, with room for the data."""
    step = 4 * tiles.CHANNEL_BLOCK * tile.blocks * grid.taps
    if grid.inputs * (step + 4 * tile.pixels) <= core.l1_bytes * 7 // 8:
        return grid.inputs
    blocks = grid.inputs // tiles.CHANNEL_BLOCK
    if grid.inputs % tiles.CHANNEL_BLOCK:
        return grid.inputs
    most = core.l1_bytes // 2 // (step * tiles.CHANNEL_BLOCK)
    return _largest(blocks, most) * tiles.CHANNEL_BLOCK


def _largest(count: int, most: int) -> int:
    """The largest divisor up to `most`, or 1."""
    return max(n for n in _divisors(count) if n <= max(1, most))


def _finish(sch: s_tir.Schedule, epilogue: Block) -> None:
    """The last loops of the epilogue are a tile: all are written out."""
    loops = sch.get_loops(epilogue)
    for loop in loops[-4:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])


def _shares(sch: s_tir.Schedule, conv: Block, grid: _Grid, target: Target) -> tuple[int, int, int]:
    """Into how many groups of channels, rows and columns the work is divided."""
    read, weights = _data_bytes(sch, conv), weight_bytes(sch, conv)

    def cost(groups: tuple[int, int, int]) -> tuple[int, float, int]:
        tasks = grid.batch * prod(groups)
        turns = -(-tasks // target.cores)
        longest = turns * (grid.channels * grid.pixels // prod(groups))
        return longest, turns * (weights / groups[0] + read / (groups[1] * groups[2])), tasks

    return min(_divisions(grid), key=cost)


def _divisions(grid: _Grid) -> Iterator[tuple[int, int, int]]:
    """Equal parts; of the columns only where there is one row."""
    for channels in _divisors(grid.channels):
        for rows in _divisors(grid.rows):
            for columns in _divisors(grid.columns) if grid.rows == 1 else [1]:
                yield channels, rows, columns


def _divisors(count: int) -> list[int]:
    return [n for n in range(1, count + 1) if count % n == 0]


def _data_bytes(sch: s_tir.Schedule, conv: Block) -> int:
    data = sch.get(conv).reads[0].source
    return prod(int(d) for d in data.shape) * int(data.dtype.bits) // 8


def _order(
    sch: s_tir.Schedule, conv: Block, grid: _Grid, groups: tuple[int, int, int], core: Ports
) -> str:
    """The order in which a core's share of data and weights comes least often from outside."""
    data = _data_bytes(sch, conv) // grid.batch // (groups[1] * groups[2])
    weights = weight_bytes(sch, conv) // groups[0]
    stays = core.l2_bytes // 2
    by_channels = weights + data * (1 if data <= stays else grid.channels // groups[0])
    by_pixels = data + weights * (1 if weights <= stays else grid.pixels // (groups[1] * groups[2]))
    return ORDERS[0] if by_channels <= by_pixels else ORDERS[1]


def _next_weights(grid: _Grid, plan: _Plan, tile: Tile) -> prefetch.Plan:
    flat = grid.rows == 1
    return prefetch.Plan(
        block_axis=0,
        blocks=tile.blocks,
        rows=plan.chunk * grid.taps,
        repeat=_COLUMN if flat else _ROW,
        step=tile.columns if flat else tile.rows,
        repeats=grid.columns // plan.groups[2] if flat else grid.rows // plan.groups[1],
        once=None if flat else _COLUMN,
    )


def space_of_tiles(sch: s_tir.Schedule, conv: Block, tile: Tile, target: Target) -> Space:
    """Values of the parameters, those of the rule first."""
    grid = _grid(sch, conv, tile)
    plan = _plan(sch, conv, grid, tile, target)
    sizes = (c for c in (16, 32, 64, 128, 256, grid.inputs) if grid.inputs % c == 0)
    return {
        "order": default_first(plan.order, ORDERS),
        "chunk": default_first(plan.chunk, sizes),
        "unroll": default_first(_UNROLL, (1, 2, 8, 16)),
        "prefetch": (1, 0) if plan.prefetch else (0, 1),
    }
