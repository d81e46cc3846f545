"""Winograd convolution: transform strips of tiles, multiply like a matmul, transform back.

If the transformed data would not fit the second-level cache, a task does all three for a few
strips of tiles. Otherwise each stage runs in parallel over its own outer loops, which balances
better and reads the weights once; or, if requested, each core does all three for its share of the
tiles, and no data pass between the cores.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

from tvmscope.compiler.cost.dense_tiles import product_blocks
from tvmscope.compiler.cost.ports import is_wide, ports
from tvmscope.compiler.cost.tiles import NEAR_BYTES, block_registers, most_columns
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    default_first,
    find_op,
    inline_epilogue,
    vectorize_last,
    weight_bytes,
)
from tvmscope.compiler.schedules.cpu.parameters import COLUMNS, KERNEL, SUMS
from tvmscope.compiler.tunable.knobs import int_of, params_of
from tvmscope.core.target import Target
from tvmscope.core.tuning import Params
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import LoopRV

Loop: TypeAlias = "LoopRV"
_CHUNK = 32
_WHOLE_DEPTH = 128
"""Up to this many channels, a tile stays in registers until it is finished."""
_UNROLL = 4
_FEW = 7
"""Concurrent sums that keep the multipliers busy."""
_TILE = 2
"""The product's iterator over tiles."""
_MOST_WEIGHT_BYTES = 6 << 20
"""Larger weights are not read again for each strip: they would come from memory."""
_LEAST_BALANCE = 0.9
_MOST_STRIPS = 4
_WAY_ELEMENTS, _LINE_ELEMENTS = 1024, 16
"""The elements of a first-level cache's way, and of one of its lines."""


def schedule_winograd(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with the three annotated Winograd stages.

    Parameters: `strips` (of tiles that a task takes through all stages, 0: each stage is parallel
    by itself), `share` (each core takes its share of the tiles through all stages, wherever strips
    begin), and the product's `columns` (tiles in registers), `chunk` (channels summed before the
    next tiles' turn), `unroll`, `order` and `prefetch`.
    """
    sch = new_schedule(func)
    stages = _stages(sch)
    if stages is None:
        return None
    spectrum, product, output = stages
    params = params_of(sch, product)
    share = _shape(sch, spectrum)[3] // target.cores if "share" in params else 0
    strips, possible = int_of(params, "strips"), _possible_strips(sch, stages, target)
    if strips is None or strips not in (0, *possible):  # for example if it was found on more cores
        strips = _own_strips(sch, stages, target)
    task = _transform_output(sch, output, inline_epilogue(sch, output), strips, share)
    _multiply(sch, product, params, target, task, near=strips > 0)
    _transform_input(sch, spectrum, task, alone=share > 0)
    return sch


def _stages(sch: s_tir.Schedule) -> list[Block] | None:
    named = (find_op(sch, f"winograd_{stage}") for stage in ("input", "product", "output"))
    found = [block for block in named if block is not None]
    return found if len(found) == 3 else None


def _own_strips(sch: s_tir.Schedule, stages: list[Block], target: Target) -> int:
    """Return how many strips a task takes by default; 0 if each stage is parallel by itself."""
    spectrum, product, _ = stages
    between = sum(4 * prod(_shape(sch, block)) for block in (spectrum, product))
    near, most = NEAR_BYTES, _MOST_WEIGHT_BYTES
    if is_wide(target):  # weights from the third-level cache would be waited for
        near, most = ports(target).l2_bytes, ports(target).l2_bytes * 3 // 4
    if between <= near * target.cores or weight_bytes(sch, product) > most:
        return 0
    return next(iter(_possible_strips(sch, stages, target)), 0)


def _possible_strips(sch: s_tir.Schedule, stages: list[Block], target: Target) -> list[int]:
    """Return the numbers of strips that fill the registers and keep all cores busy, ascending."""
    spectrum, product, output = stages
    (half,) = sch.get_producers(spectrum)
    there, across = _shape(sch, half)[1], _across(sch, half)
    other_way = {"columns", "share"} & params_of(sch, product).keys()
    if other_way or _shape(sch, spectrum)[3] != _shape(sch, output)[1]:
        return []  # tiles fill the registers differently
    (untile,) = sch.get_consumers(output)
    down = there // _shape(sch, untile)[0]
    most = most_columns(target)
    found = []
    for strips in (n for n in range(1, _MOST_STRIPS + 1) if down % n == 0):
        tasks = there // strips
        balance = tasks / (-(-tasks // target.cores) * target.cores)
        width = next(w for w in range(most, 0, -1) if strips * across % w == 0)
        if balance >= _LEAST_BALANCE and 2 * width >= most:
            found.append(strips)
    return found


def _shape(sch: s_tir.Schedule, block: Block) -> list[int]:
    return [int(d) for d in sch.get(block).writes[0].source.shape]


def _across(sch: s_tir.Schedule, half: Block) -> int:
    """Return the tiles in a strip, computed from its columns."""
    alpha, width = _shape(sch, half)[2:4]
    return (width - 2) // (alpha - 2)


def _transform_input(
    sch: s_tir.Schedule, spectrum: Block, task: Loop | None, *, alone: bool
) -> None:
    """Transform strip by strip: columns are transformed once for the tiles that share them.

    Tiles `alone` have their own columns: the shares of the cores begin and end inside strips.
    """
    if task is not None:
        sch.compute_at(spectrum, task, preserve_unit_loops=True)
    (half,) = sch.get_producers(spectrum)
    (column,) = sch.get_producers(half)
    y, x, c, t, lanes = sch.get_loops(spectrum)[-5:]
    r, j = sch.split(t, factors=[None, 1 if alone else _across(sch, half)])
    sch.reorder(c, r, j, y, x, lanes)
    strip = sch.fuse(c, r)
    sch.compute_at(half, strip, preserve_unit_loops=True)
    rows, columns, _ = sch.get_loops(half)[-3:]
    sch.reorder(columns, rows)
    sch.compute_at(column, columns)
    sch.set_scope(column, 0, "local")
    # A tile's values go to as many addresses; these must not all be in one set of the cache.
    sch.storage_align(spectrum, 0, 1, _WAY_ELEMENTS, _LINE_ELEMENTS)
    if task is None:
        sch.parallel(strip)
    _unroll_inside(sch, column, columns)
    _unroll_inside(sch, half, columns)
    _unroll_inside(sch, spectrum, j)


def _multiply(
    sch: s_tir.Schedule,
    product: Block,
    params: Params,
    target: Target,
    task: Loop | None,
    *,
    near: bool,
) -> None:
    """Multiply like a matmul; `near` weights are in the cache from the previous task."""
    depth = int(sch.get(sch.get_loops(product)[-1]).extent)
    chunk = int_of(params, "chunk") or _chunk(depth)
    chunk = chunk if depth % chunk == 0 else depth
    whole = chunk == depth
    written = sch.cache_write(product, 0, "local") if whole else product
    if task is not None:
        for stage in dict.fromkeys((written, product)):
            sch.compute_at(stage, task, preserve_unit_loops=True)
    sch.storage_align(written, 0, 0, _WAY_ELEMENTS, _LINE_ELEMENTS)
    p, o, t, lanes, k = sch.get_loops(product)[-5:]
    width = int_of(params, "columns") or _columns(sch, t, target, few=task is not None)
    blocks = product_blocks(int(sch.get(o).extent), width, target)
    o_t, o_i = sch.split(o, factors=[None, blocks])
    t_o, t_i = sch.split(t, factors=[None, width])
    k_o, k_i = sch.split(k, factors=[None, chunk])
    by_points = params.get("order") != "channels"
    outer = (p, o_t) if by_points else (o_t, p)
    steps = (t_o, k_o) if whole else (k_o, t_o)
    sch.reorder(*outer, *steps, k_i, t_i, o_i, lanes)
    block = sch.fuse(*outer)
    unroll = int_of(params, "unroll") or _UNROLL
    k_s, unrolled = sch.split(k_i, factors=[None, unroll if chunk % unroll == 0 else 1])
    sch.unroll(unrolled)
    if task is None:
        sch.parallel(block)
    sch.unroll(t_i)
    sch.unroll(o_i)
    sch.vectorize(lanes)
    if whole:
        sch.reverse_compute_at(written, t_o, preserve_unit_loops=True)
        _unroll_inside(sch, written, t_o)
    sch.decompose_reduction(product, k_o)
    if not near and params.get("prefetch", int(prefetch.far(sch, product))):
        repeats = int(sch.get(t_o).extent)
        plan = _next_weights(by_points, chunk, width, repeats, blocks)
        if prefetch.spreads(width * blocks * block_registers(target), chunk, target):
            prefetch.mark_spread(sch, k_s, chunk // int(sch.get(k_s).extent), plan)
        else:
            prefetch.mark(sch, steps[-1], plan)


def _next_weights(
    by_points: bool, chunk: int, width: int, repeats: int, blocks: int
) -> prefetch.Plan:
    return prefetch.Plan(
        block_axis=int(by_points),
        blocks=blocks,
        carry=by_points,
        rows=chunk,
        repeat=_TILE,
        step=width,
        repeats=repeats,
    )


def _chunk(depth: int) -> int:
    """Return how many channels are summed before the next tiles; the weights stay that long."""
    return depth if depth <= _WHOLE_DEPTH or depth % _CHUNK else _CHUNK


def _columns(sch: s_tir.Schedule, tiles: Loop, target: Target, *, few: bool) -> int:
    """Return how many tiles are kept in registers; `few` suffice if the weights are near anyway.

    Return 1 if no better number divides the tiles: the compiler then computes more tiles
    (`convolutions`), but even a product without padding is multiplied better here.
    """
    from tvmscope.compiler.kernels.winograd import ranked_product_columns

    count = int(sch.get(tiles).extent)
    most = next((w for w in ranked_product_columns(count, target) if count % w == 0), 1)
    return next((w for w in range(_FEW, most) if count % w == 0), most) if few else most


def space(func: tirx.PrimFunc, target: Target) -> Space | None:
    """Return the values that the parameters may have, the rule's own values first."""
    sch = new_schedule(func)
    stages = _stages(sch)
    if stages is None:
        return None
    product = stages[1]
    depth = int(sch.get(sch.get_loops(product)[-1]).extent)
    chunks = (c for c in (32, 64, 128, 256, depth) if depth % c == 0)
    strips = _own_strips(sch, stages, target)
    found: Space = {
        "chunk": default_first(_chunk(depth), chunks),
        "unroll": default_first(_UNROLL, (1, 2, 8)),
        "order": ("points", "channels"),
        "strips": default_first(strips, (0, *_possible_strips(sch, stages, target))),
    }
    if not strips:  # a task's weights are in its cache
        found["prefetch"] = (1, 0) if prefetch.far(sch, product) else (0, 1)
    return found


def _transform_output(
    sch: s_tir.Schedule, output: Block, epilogue: Block, strips: int, share: int
) -> Loop | None:
    """Transform tile by tile; return the loop over tasks if these include the other stages."""
    (half,) = sch.get_producers(output)
    tile = int(sch.get(sch.get_loops(output)[2]).extent)
    batch, channel, row, column, lanes = sch.get_loops(epilogue)
    rows, inner_row = sch.split(row, factors=[None, tile])
    columns, inner_column = sch.split(column, factors=[None, tile])
    inside = (inner_row, inner_column, lanes)
    task = None
    if share:
        sch.reorder(batch, rows, columns, channel, *inside)
        task, each = sch.split(sch.fuse(batch, rows, columns), factors=[None, share])
        sch.reorder(task, channel, each, *inside)
    elif strips:
        group, rows = sch.split(rows, factors=[None, strips])
        sch.reorder(batch, group, channel, rows, columns, *inside)
        task, each = sch.fuse(batch, group), columns
    else:
        sch.reorder(batch, channel, rows, columns, *inside)
        each = columns
    sch.parallel(task or sch.fuse(batch, channel, rows))
    sch.compute_at(output, inner_row)
    sch.compute_at(half, each, preserve_unit_loops=True)
    for block in (half, output):
        sch.set_scope(block, 0, "local")
    i, x, _ = sch.get_loops(half)[-3:]
    sch.reorder(x, i)
    _unroll_inside(sch, half, each)
    _unroll_inside(sch, output, inner_row)
    sch.unroll(inner_column)
    vectorize_last(sch, epilogue)
    return task


def _unroll_inside(sch: s_tir.Schedule, block: Block, outer: Loop) -> None:
    """Unroll a block's loops below `outer` and vectorise the last one."""
    loops = sch.get_loops(block)
    depth = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(outer)))
    for loop in loops[depth + 1 : -1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])


RULE = ScheduleRule(
    name="winograd",
    devices=("cpu",),
    version=3,
    words=marked("Winograd convolution: tiles are transformed, multiplied and transformed back."),
    schedule=schedule_winograd,
    space=space,
    parameters={
        **KERNEL,
        **COLUMNS,
        **SUMS,
        "strips": marked(
            "each task takes {value} strips of tiles through all of Winograd's stages"
        ),
        "strips=0": marked("each of Winograd's stages is finished before the next"),
        "strips=1": marked("each task takes a strip of tiles through all of Winograd's stages"),
        "share=1": marked("each core takes its share of tiles through all of Winograd's stages"),
    },
    switch=Switch(name="winograd-schedule", alone=False),
)
