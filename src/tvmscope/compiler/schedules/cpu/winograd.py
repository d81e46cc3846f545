"""Winograd convolution: transform tiles in registers, multiply like a matmul, transform back.

Each of the three stages runs in parallel over its own outer loops; the transformed data between
them stays in the caches.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from tvmscope.compiler import tiles
from tvmscope.compiler.schedules.cpu.blocks import Block, find_op, inline_epilogue, vectorize_last
from tvmscope.core.target import Target

_CHUNK = 64


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
    p, o, t, lanes, k = sch.get_loops(product)
    width = _divisor(int(sch.get(t).extent), tiles.most_columns(target))
    t_o, t_i = sch.split(t, factors=[None, width])
    depth = int(sch.get(k).extent)
    k_o, k_i = sch.split(k, factors=[None, _CHUNK if depth % _CHUNK == 0 else depth])
    sch.reorder(p, o, k_o, t_o, k_i, t_i, lanes)
    task = sch.fuse(p, o)
    sch.parallel(task)
    sch.unroll(t_i)
    sch.vectorize(lanes)
    sch.decompose_reduction(product, k_o)


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


def _divisor(extent: int, most: int) -> int:
    return next(w for w in range(most, 0, -1) if extent % w == 0)
