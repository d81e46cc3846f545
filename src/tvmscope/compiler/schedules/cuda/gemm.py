"""Convolutions and matrix products in half precision on tensor cores, with float32 sums.

blocks   tiles of rows x columns, and parts of the sum where tiles are few
  steps    of the sum: the next ones are copied to shared memory while one is computed
    warps    a part of the tile each, in registers: m16n8k16 on what ldmatrix loads
blocks   what follows the sum, from shared memory in vectors; a second kernel where sums have parts
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.cuda import fragments, normal_form, tiles
from tvmscope.compiler.schedules.cuda.products import Product, find_product
from tvmscope.compiler.schedules.cuda.tiles import EDGE, PAD, Tile, Work
from tvmscope.compiler.schedules.cuda.vectors import WIDEST_BITS, can_be_vectors, most_lanes
from tvmscope.core.target import Target
from tvmscope.cuda.gpus import GPUS, Gpu
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.s_tir.schedule import LoopRV

    from tvmscope.compiler.schedules.blocks import Block

_HALF = ("float16", "bfloat16")
_FIRST = 80
"""The first compute capability with asynchronous copies and m16n8k16."""
_LEAST_TERMS = 16
_ADDING_THREADS = 128


def schedule_gemm(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes products of half-precision numbers with a sum that fills a tensor-core tile."""
    device = _gpu(target)
    if device is None:
        return None
    product = find_product(func)
    if product is None or product.dtype not in _HALF:
        return None
    _, _, columns, terms = product.sizes
    if terms < _LEAST_TERMS or columns < EDGE // 2:
        return None
    return schedule_tile(product, tiles.choose(work_of(product), device))


def work_of(product: Product) -> Work:
    """Return the sizes that decide on the tile."""
    batch, rows, columns, terms = product.sizes
    lanes = (product.left.lanes, product.right.lanes)
    return Work(batch=batch, rows=rows, columns=columns, terms=terms, lanes=lanes)


def _gpu(target: Target) -> Gpu | None:
    """Return what is known of the target's GPU, if it has the instructions."""
    found = GPUS.get(target.arch)
    return found if found is not None and found.capability >= _FIRST else None


def schedule_tile(product: Product, tile: Tile, *, tensorize: bool = True) -> s_tir.Schedule:
    """Return the schedule with a tile; without `tensorize`, loops in place of the intrinsics."""
    from tvm import s_tir

    shape = (tile.rows, tile.columns, tile.terms)
    sch = s_tir.Schedule(normal_form.normal_form(product, shape, tile.parts))
    inner = sch.get_sblock(normal_form.SUM)
    outer, loops = _tile(sch, inner, tile)
    block, warp, step, load = loops
    for name, operand in ((normal_form.LEFT, product.left), (normal_form.RIGHT, product.right)):
        _stage(sch, sch.get_sblock(name), step, tile, operand.lanes)
    left, right = (sch.cache_read(outer, i, "local") for i in range(2))
    for each in (left, right):
        sch.compute_at(each, load, preserve_unit_loops=True)
    stored = sch.cache_write(outer, 0, "local")
    sch.reverse_compute_at(stored, warp, preserve_unit_loops=True)
    _finish(sch, product, tile, stored, block)
    cleared = sch.decompose_reduction(outer, step)
    at = [_in_tiles(sch, each) for each in (left, right, stored)]
    if tile.stages > 1:
        sch.annotate(step, "software_pipeline_stage", [0, 0, tile.stages - 1])
        sch.annotate(step, "software_pipeline_order", [0, 1, 2])
        sch.annotate(step, "software_pipeline_async_stages", [0])
    if tensorize:
        _tensorize(sch, product, tile, (left, right, stored), at)
        multiplied = fragments.name("multiply", product.dtype, _way(product))
        sch.tensorize(sch.get_loops(inner)[-3], multiplied)
        (clear,) = sch.get_child_blocks(cleared)
        sch.tensorize(sch.get_loops(clear)[-2], fragments.name("clear", "float32"))
    return sch


def _tile(
    sch: s_tir.Schedule, main: Block, tile: Tile
) -> tuple[Block, tuple[LoopRV, LoopRV, LoopRV, LoopRV]]:
    """Tile the sum; return its block of tensor-core tiles, and the loops of blocks, warps, steps
    and loads."""
    part, batch, m, n, k = sch.get_loops(main)
    down, across = tile.warps
    others = sch.fuse(part, batch)
    m0, m1, m2, m3 = sch.split(m, [None, down, tile.rows // down // EDGE, EDGE])
    n0, n1, n2, n3 = sch.split(n, [None, across, tile.columns // across // EDGE, EDGE])
    k0, k1, k2 = sch.split(k, [None, tile.terms // EDGE, EDGE])
    sch.reorder(others, m0, n0, m1, n1, k0, k1, m2, n2, m3, n3, k2)
    outer = sch.blockize(m3)
    warp = sch.fuse(m1, n1)
    for loop, thread in (
        (others, "blockIdx.z"), (m0, "blockIdx.x"), (n0, "blockIdx.y"), (warp, "threadIdx.y"),
    ):  # fmt: skip
        sch.bind(loop, thread)
    for loop in (m2, n2):  # a register has no index
        sch.unroll(loop)
    return outer, (n0, warp, k0, k1)


def _stage(sch: s_tir.Schedule, block: Block, step: LoopRV, tile: Tile, lanes: int) -> None:
    """Copy a step's operand to shared memory with all threads."""
    sch.set_scope(block, 0, "shared.dyn")  # first: so that it is the whole tile, not a warp's part
    sch.compute_at(block, step, preserve_unit_loops=True)
    _spread(sch, sch.fuse(*sch.get_loops(block)[-3:]), tile, lanes)
    sch.storage_align(block, 0, axis=-2, factor=2 * PAD, offset=PAD)


def _spread(sch: s_tir.Schedule, loop: LoopRV, tile: Tile, lanes: int) -> None:
    """Give neighbouring vectors of a loop to neighbouring threads of the block."""
    warps = tile.warps[0] * tile.warps[1]
    _, y, x, vector = sch.split(loop, [None, warps, fragments.WARP, lanes])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.vectorize(vector)


def _finish(
    sch: s_tir.Schedule, product: Product, tile: Tile, stored: Block, block: LoopRV
) -> None:
    """Compute what follows the sums: in the same kernel, or in a second one that adds the parts."""
    result = sch.get_sblock(normal_form.RESULT)
    lanes = _lanes(product)
    if tile.parts == 1:
        sch.set_scope(stored, 0, "shared.dyn")
        sch.reverse_compute_at(result, block, preserve_unit_loops=True)
        _spread(sch, sch.fuse(*sch.get_loops(result)[-3:]), tile, lanes)
        return
    fused = sch.fuse(*sch.get_loops(result))
    x, y, vector = sch.split(fused, [None, _ADDING_THREADS, lanes])
    sch.bind(x, "blockIdx.x")
    sch.bind(y, "threadIdx.x")
    sch.vectorize(vector)


def _lanes(product: Product) -> int:
    """Return how many columns of the result lie beside each other in memory, in whole vectors."""
    from tvm import tirx

    store = product.result_store
    wide = [v for v in product.columns if int(v.dom.extent) > 1]
    if not wide or not store.indices:
        return 1
    place = next(
        (
            read
            for own, read in zip(product.indices, product.sum_read, strict=True)
            if own.same_as(wide[-1].var)
        ),
        None,
    )
    if not isinstance(place, tirx.Var) or not place.same_as(store.indices[-1]):
        return 1
    widest = min(WIDEST_BITS // int(store.buffer.dtype.bits), most_lanes(store.value, place))
    return gcd(widest, int(wide[-1].dom.extent)) if can_be_vectors(store) else 1


def _in_tiles(sch: s_tir.Schedule, block: Block) -> LoopRV:
    """Make tensor-core tiles of a block's last two loops; return the first loop of a tile."""
    i, j = sch.get_loops(block)[-2:]
    i0, i1 = sch.split(i, [None, EDGE])
    j0, j1 = sch.split(j, [None, EDGE])
    sch.reorder(i0, j0, i1, j1)
    sch.unroll(i0)
    sch.unroll(j0)
    return i1


def _way(product: Product) -> str:
    return "by_sum" if product.right.along_sum else "by_column"


def _tensorize(
    sch: s_tir.Schedule,
    product: Product,
    tile: Tile,
    blocks: tuple[Block, Block, Block],
    at: list[LoopRV],
) -> None:
    """Lay the copies out as the intrinsics hold them, and replace their loops."""
    left, right, stored = blocks

    def tiled(row: tirx.Var, column: tirx.Var) -> tuple[tirx.Expr, ...]:
        inside = fragments.layout(row % EDGE, column % EDGE)
        return (row // EDGE, column // EDGE, *inside)

    def operand(b: tirx.Var, row: tirx.Var, column: tirx.Var) -> tuple[tirx.Expr, ...]:
        return (b, *tiled(row, column))

    def sums(s: tirx.Var, b: tirx.Var, row: tirx.Var, column: tirx.Var) -> tuple[tirx.Expr, ...]:
        return (s, b, *tiled(row, column))

    sch.transform_layout(left, ("write", 0), operand)
    sch.transform_layout(right, ("write", 0), operand)
    sch.transform_layout(stored, ("read", 0), sums)
    scope = "shared.dyn" if tile.parts == 1 else "global"
    name = sch.get(stored).name_hint
    sch.tensorize(at[0], fragments.name("left", product.dtype))
    sch.tensorize(at[1], fragments.name("right", product.dtype, _way(product)))
    sch.tensorize(at[2], fragments.name("store", "float32", scope))
    if tile.parts == 1:
        sch.storage_align(sch.get_sblock(f"{name}_o"), 0, axis=-2, factor=2 * PAD, offset=PAD)


RULE = ScheduleRule(
    name="tir-gemm",
    devices=("cuda",),
    version=2,
    words=marked(
        "Convolutions and matrix products in half precision on tensor cores: tiles in shared "
        "memory that asynchronous copies fill, and what follows in the same kernel."
    ),
    schedule=schedule_gemm,
    switch=Switch(name="tir-gemm-schedule", alone=False),
    shared_switch=Switch(name="tir-schedules", alone=False),
)
