"""Winograd convolution: transform tiles in registers, multiply like a matmul, transform back.

Each of the three stages runs in parallel over its own outer loops; the transformed data between
them stays in the caches.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from tvmscope.compiler.knobs import int_of, params_of
from tvmscope.compiler.schedules.cpu import prefetch
from tvmscope.compiler.schedules.cpu.blocks import (
    Block,
    Space,
    default_first,
    find_op,
    inline_epilogue,
    vectorize_last,
)
from tvmscope.compiler.winograd import ranked_product_columns
from tvmscope.core.target import Target

_CHUNK = 32
_UNROLL = 4
_TILE = 2
"""The product's iterator over tiles."""


def schedule_winograd(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with the three annotated Winograd stages."""
    sch = s_tir.Schedule(func)
    found = [find_op(sch, f"winograd_{stage}") for stage in ("input", "product", "output")]
    if any(block is None for block in found):
        return None
    spectrum, product, output = found
    _transform_input(sch, spectrum)
    _multiply(sch, product, target)
    _transform_output(sch, output, inline_epilogue(sch, output))
    return sch


def _transform_input(sch: s_tir.Schedule, spectrum: Block) -> None:
    (half,) = sch.get_producers(spectrum)
    (tile,) = sch.get_producers(half)
    y, x, c, t, lanes = sch.get_loops(spectrum)
    sch.reorder(c, t, y, x, lanes)
    task = sch.fuse(c, t)
    for block in (half, tile):
        sch.compute_at(block, task)
        sch.set_scope(block, 0, "local")
    sch.parallel(task)
    for block in (tile, half, spectrum):
        _unroll_inside(sch, block, task)


def _multiply(sch: s_tir.Schedule, product: Block, target: Target) -> None:
    params = params_of(sch, product)
    p, o, t, lanes, k = sch.get_loops(product)
    width = int_of(params, "columns") or _columns(sch, t, target)
    t_o, t_i = sch.split(t, factors=[None, width])
    depth = int(sch.get(k).extent)
    chunk = int_of(params, "chunk") or _CHUNK
    chunk = chunk if depth % chunk == 0 else depth
    k_o, k_i = sch.split(k, factors=[None, chunk])
    outer = (o, p) if params.get("order") == "channels" else (p, o)
    sch.reorder(*outer, k_o, t_o, k_i, t_i, lanes)
    task = sch.fuse(*outer)
    unroll = int_of(params, "unroll") or _UNROLL
    unroll = unroll if chunk % unroll == 0 else 1
    _, unrolled = sch.split(k_i, factors=[None, unroll])
    sch.unroll(unrolled)
    sch.parallel(task)
    sch.unroll(t_i)
    sch.vectorize(lanes)
    sch.decompose_reduction(product, k_o)
    if params.get("prefetch", int(prefetch.far(sch, product))):
        plan = prefetch.Plan(
            block_axis=1,
            rows=chunk,
            repeat=_TILE,
            step=width,
            repeats=int(sch.get(t_o).extent),
        )
        prefetch.mark(sch, t_o, plan)


def _columns(sch: s_tir.Schedule, tiles: object, target: Target) -> int:
    count = int(sch.get(tiles).extent)
    return next(w for w in ranked_product_columns(count, target) if count % w == 0)


def space(func: tirx.PrimFunc, _: Target) -> Space | None:
    """Values of the product's parameters that divide its reduction, those of the rule first."""
    sch = s_tir.Schedule(func)
    product = find_op(sch, "winograd_product")
    if product is None:
        return None
    depth = int(sch.get(sch.get_loops(product)[-1]).extent)
    chunks = default_first(
        _CHUNK if depth % _CHUNK == 0 else depth,
        (c for c in (32, 64, 128, 256, depth) if depth % c == 0),
    )
    return {
        "chunk": chunks,
        "unroll": default_first(_UNROLL, (1, 2, 8)),
        "order": ("points", "channels"),
        "prefetch": (1, 0) if prefetch.far(sch, product) else (0, 1),
    }


def _transform_output(sch: s_tir.Schedule, output: Block, epilogue: Block) -> None:
    (half,) = sch.get_producers(output)
    tile = int(sch.get(sch.get_loops(output)[2]).extent)
    _, channel, row, column, _ = sch.get_loops(epilogue)
    rows, _ = sch.split(row, factors=[None, tile])
    columns, _ = sch.split(column, factors=[None, tile])
    inner = sch.get_loops(epilogue)
    sch.reorder(inner[0], channel, rows, columns, inner[3], inner[5], inner[6])
    sch.compute_at(output, columns)
    sch.compute_at(half, columns)
    for block in (output, half):
        sch.set_scope(block, 0, "local")
    task = sch.fuse(*sch.get_loops(epilogue)[:3])
    sch.parallel(task)
    for block in (half, output):
        _unroll_inside(sch, block, columns)
    vectorize_last(sch, epilogue)


def _unroll_inside(sch: s_tir.Schedule, block: Block, outer: object) -> None:
    """Unroll a block's loops below `outer` and vectorise the last one."""
    loops = sch.get_loops(block)
    depth = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(outer)))
    for loop in loops[depth + 1 : -1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])
