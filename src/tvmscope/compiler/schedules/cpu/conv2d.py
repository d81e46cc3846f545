"""Dense convolution on channel blocks: whole rows, in tiles of columns x one block of channels.

Kernels whose tiles are of another form are scheduled by `conv2d_tiles`.

parallel  image x channel block x output row
  ic_o        input channels in chunks whose weights stay in the first-level cache
    ow_o        tiles of columns
      kh, kw, ic  the reduction; the sums stay in registers
        ow_i, 16    unrolled columns, vectorised channels
  epilogue    bias, addition, activation on the finished row, still in cache

If a row has several tiles, and all weights fit the second-level cache or the kernel is 1x1, each
tile is finished before the next begins: its sums go from registers through the epilogue into the
result.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.dense_tiles import Tile, named
from tvmscope.compiler.kernels.marks import TILE
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    find_op,
    inline_epilogue,
    keep_in_registers,
    schedule_copies,
    vectorize_last,
    weight_bytes,
)
from tvmscope.compiler.schedules.cpu.conv2d_tiles import schedule_tiles, space_of_tiles
from tvmscope.compiler.schedules.cpu.parameters import COLUMNS, KERNEL, SUMS
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_CHUNKS = (64, 48, 32, 16)
_UNROLL = 4
_ROW, _COLUMN = 2, 3
"""The convolution's iterators over the image."""
_WEIGHTS_STAY_BYTES = 256 * 1024
"""Weights up to this size stay in a second-level cache while all rows of the image are computed."""
_SECOND_CACHE_BYTES = 1024 * 1024
"""The second-level cache's capacity if nothing else must stay: for weights read once per row."""


def schedule_conv2d(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with a blocked convolution and injective blocks around it.

    Parameters, which follow from the shapes unless the block has them: the tile's `columns`,
    whether each tile is `finish`ed at once, the input channels of a `chunk`, how many of them are
    `unroll`ed, the `order` of the tasks (`rows` or `channels` outermost), and whether they
    `prefetch` the weights of the next.
    """
    sch = new_schedule(func)
    conv = find_op(sch, "conv2d")
    if conv is None:
        return None
    tile = _tile(sch, conv)
    if tile is not None and not tile.row:
        return schedule_tiles(sch, conv, tile, target)
    epilogue = inline_epilogue(sch, conv)
    schedule_copies(sch, before=conv)
    n, oc, oh, ow, block, ic, kh, kw = sch.get_loops(conv)
    params = params_of(sch, conv)
    height, *kernel = (int(sch.get(loop).extent) for loop in (oh, kh, kw))
    width = tile.columns if tile else tiles.columns(int(sch.get(ow).extent), target)
    finish = bool(params.get("finish", _finishes_tiles(sch, conv, epilogue, width)))
    channels = int(sch.get(ic).extent)
    chunk = channels if finish else int_of(params, "chunk") or _chunk(channels)
    ow_o, ow_i = sch.split(ow, factors=[None, width])
    ic_o, ic_i = sch.split(ic, factors=[None, chunk])
    outer = (ow_o, ic_o) if finish else (ic_o, ow_o)
    order = params.get("order", _order(sch, conv, finish))
    around = (oh, oc) if order == "rows" else (oc, oh)
    sch.reorder(n, *around, *outer, kh, kw, ic_i, ow_i, block)
    task = sch.fuse(n, *around)
    sch.reverse_compute_at(epilogue, ow_o if finish else task, preserve_unit_loops=True)
    sch.parallel(task)
    unroll = int_of(params, "unroll") or _UNROLL
    unroll = unroll if chunk % unroll == 0 else 1
    _, unrolled = sch.split(ic_i, factors=[None, unroll])
    sch.unroll(unrolled)
    sch.unroll(ow_i)
    sch.vectorize(block)
    if finish:
        keep_in_registers(sch, conv, epilogue)
    vectorize_last(sch, epilogue)
    sch.decompose_reduction(conv, ic_o)
    if params.get("prefetch", int(order == "channels" and prefetch.far(sch, conv))):
        rows = chunk * prod(kernel)
        plan = prefetch.Plan(
            block_axis=0, rows=rows, repeat=_ROW, step=1, repeats=height, once=_COLUMN
        )
        prefetch.mark(sch, outer[-1], plan)
    return sch


def space(func: tirx.PrimFunc, target: Target) -> Space | None:
    """Return legal values of the parameters for a convolution, the rule's own values first."""
    sch = new_schedule(func)
    conv = find_op(sch, "conv2d")
    if conv is None:
        return None
    tile = _tile(sch, conv)
    if tile is not None and not tile.row:
        return space_of_tiles(sch, conv, tile, target)
    epilogue = inline_epilogue(sch, conv)
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(conv)]
    columns, channels = extents[3], extents[5]
    width = tile.columns if tile else tiles.columns(columns, target)
    finish = _finishes_tiles(sch, conv, epilogue, width)
    whole = columns == int(sch.get(sch.get_loops(epilogue)[3]).extent)
    sizes = (16, 32, 48, 64, 96, 128, 256, channels)
    rows_first = _order(sch, conv, finish) == "rows"
    return {
        "finish": (int(finish), *([int(not finish)] if whole else [])),
        "chunk": default_first(_chunk(channels), (c for c in sizes if channels % c == 0)),
        "order": ("rows", "channels") if rows_first else ("channels", "rows"),
        "unroll": default_first(_UNROLL, (1, 2, 8, 16)),
        "prefetch": (0, 1) if rows_first else (1, 0),
    }


def _tile(sch: s_tir.Schedule, conv: Block) -> Tile | None:
    """Return the tile that the computation was padded for; None if a plug-in's pass set none."""
    name = sch.get(conv).annotations.get(TILE)
    return None if name is None else named(str(name))


def _finishes_tiles(sch: s_tir.Schedule, conv: Block, epilogue: Block, width: int) -> bool:
    extents = [int(sch.get(loop).extent) for loop in sch.get_loops(conv)]
    columns, kernel = extents[3], extents[6:]
    wanted = int(sch.get(sch.get_loops(epilogue)[3]).extent)
    fits = kernel == [1, 1] or weight_bytes(sch, conv) <= _SECOND_CACHE_BYTES
    return fits and columns > width and columns == wanted


def _order(sch: s_tir.Schedule, conv: Block, finish: bool) -> str:
    """Put rows outermost if all weights stay in a cache from one row to the next."""
    kernel = [int(d) for d in sch.get(conv).reads[-1].source.shape[2:4]]
    most = _SECOND_CACHE_BYTES if finish and kernel != [1, 1] else _WEIGHTS_STAY_BYTES
    return "rows" if weight_bytes(sch, conv) <= most else "channels"


def _chunk(channels: int) -> int:
    return next((c for c in _CHUNKS if channels % c == 0), channels)


RULE = ScheduleRule(
    name="conv2d",
    devices=("cpu",),
    version=3,
    words=marked("Dense convolution on channel blocks: a tile of columns stays in registers."),
    schedule=schedule_conv2d,
    space=space,
    parameters={
        **KERNEL,
        **COLUMNS,
        **SUMS,
        "tile": marked(
            "a tile of {value} (blocks of channels x rows x columns) is kept in registers"
        ),
        "group": marked("{value} tiles of pixels pass by the weights of a tile of channels"),
        "finish=1": marked("each tile goes from registers through the epilogue into the result"),
        "finish=0": marked("whole rows are summed up in memory before the epilogue"),
    },
    switch=Switch(name="conv2d-schedule", needs=("layout",)),
)
