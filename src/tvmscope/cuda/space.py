"""All configurations of a unit that a GPU can run: the space that the cost model ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tvmscope.cuda.binding import as_product, padded, width_of_group
from tvmscope.cuda.config import Config, Layout, Template
from tvmscope.cuda.contraction import Contraction, contraction_of
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.library.call import why_not
from tvmscope.cuda.units import (
    ITEM_BYTES,
    Attention,
    Conv2d,
    GroupNorm,
    Matmul,
    Norm,
    Pool,
    Softmax,
    Unit,
)

_SIDES = (16, 32, 64, 128, 256)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_STAGES = (2, 3, 4, 5, 6)
"""With one stage, operands are loaded through the L1 cache: only where the loop has one step, and
neighbouring windows share most of their values."""
_MOST_SUMS = 128
"""Accumulators per thread: with operands and addresses about 200 of 255 registers."""
_MOST_VALUES = 64
"""Values per thread without tensor cores."""
_MOST_COLUMNS = 256
"""The most channels of several groups in one block: more blocks are better than wider ones."""
_MATVEC_ROWS = 4
"""With more rows, tensor cores are faster in spite of their empty rows."""


def configs(unit: Unit, gpu: Gpu) -> Iterator[Config]:
    """Yield every legal configuration, in no particular order."""
    for config in _candidates(unit, gpu):
        if why_illegal(unit, config, gpu) is None:
            yield config


def _candidates(unit: Unit, gpu: Gpu) -> Iterator[Config]:
    contraction = contraction_of(unit)
    if isinstance(unit, Conv2d) and unit.depthwise:
        yield from _pixel_tiles("depthwise", unit.p, unit.q, unit.oc)
    elif contraction is not None:
        yield from _tiles(unit, contraction, gpu)
        if isinstance(unit, Matmul) and unit.m <= _MATVEC_ROWS:
            yield from _stretches(unit, gpu)
        if gpu.has_persistent and isinstance(unit, Conv2d | Matmul) and as_product(unit):
            yield from _persistent(contraction, gpu)
    elif isinstance(unit, Attention):
        yield from _attention(unit)
    elif isinstance(unit, Softmax):
        yield from _rows("softmax", unit)
    elif isinstance(unit, Norm):
        yield from _rows("norm", unit)
    elif isinstance(unit, GroupNorm):
        yield from _groups(unit)
    elif isinstance(unit, Pool):
        if unit.whole:
            for m, n, warps in itertools.product((8, 16, 32, 64), (8, 16, 32, 64, 128), (2, 4, 8)):
                yield Config(template="mean", m=m, n=n, warps=warps, stages=1)
        else:
            yield from _pixel_tiles("pool", unit.p, unit.q, unit.c)


def why_illegal(unit: Unit, config: Config, gpu: Gpu) -> str | None:
    """Say why a configuration is illegal on that GPU; None if it is legal."""
    if config.of_library:
        return why_not(unit, config.template)
    sides = {"m": config.m, "n": config.n, "k": config.k or 1, "warps": config.warps}
    for name, side in sides.items():
        if side < 1 or side & (side - 1):
            return f"{name} is {side}, not a power of two"
    if config.pdl and not gpu.has_dependent_launch:
        return f"{gpu.arch} has no programmatic dependent launch"
    if config.template in ("conv2d", "matmul", "persistent"):
        return _tile_illegal(unit, config, gpu)
    if config.template == "attention":
        return _attention_illegal(unit, config, gpu)
    values = config.n * (config.k if config.template == "matvec" else config.m)
    if values > _MOST_VALUES * 32 * config.warps:
        return f"{values // (32 * config.warps)} values per thread"
    if config.template == "matvec":
        steps = -(-unit.k // config.k) if isinstance(unit, Matmul) else 0
        if not isinstance(unit, Matmul) or unit.matrix_b(config.layout).row != 1:
            return "matvec takes matrix products whose right side is contiguous along the sum"
        return _split_illegal(steps, config.split)
    if isinstance(unit, GroupNorm) and config.n < width_of_group(unit):
        return f"{config.n} columns do not hold a group of {unit.width} channels"
    if config.template in ("depthwise", "pool") and config.k > config.m:
        return f"a tile of {config.m} pixels is not {config.k} wide"
    return None


def _tile_illegal(unit: Unit, config: Config, gpu: Gpu) -> str | None:
    c = contraction_of(unit)
    if c is None or config.template not in ("persistent", unit.kind):
        return f"{config.template} does not compute {unit.kind}"
    if min(config.m, config.n, config.k) < 16:
        return "tensor cores take 16 values of each axis"
    if config.m % c.pooled:
        return f"{config.m} rows are no whole windows of {c.pooled}"
    sums = sums_per_thread(config)
    if sums > (64 if c.math in ("ieee", "tf32x3") else _MOST_SUMS):
        return f"{sums} accumulators per thread"
    shared = shared_bytes(c, config, gpu)
    if shared > gpu.block_shared_bytes:
        return f"{shared} bytes of shared memory, {gpu.block_shared_bytes} are there"
    if config.layout == "nk" and not c.free_layout:
        return "only a weight can be packed"
    if config.template == "persistent":
        if not isinstance(unit, Conv2d | Matmul) or as_product(unit) is None:
            return f"persistent does not compute {unit.label}"
        return None if gpu.has_persistent else f"persistent is not for {gpu.arch}"
    return _split_illegal(c.steps(config.k), config.split)


def _split_illegal(steps: int, split: int) -> str | None:
    each = -(-steps // split)
    empty = split > 1 and (split - 1) * each >= steps
    return f"split {split} leaves a part of the sum empty" if empty else None


def _attention_illegal(unit: Unit, config: Config, gpu: Gpu) -> str | None:
    if not isinstance(unit, Attention):
        return f"attention does not compute {unit.kind}"
    if min(config.m, config.n) < 16:
        return "tensor cores take 16 values of each axis"
    sums = config.m * (padded(unit.dim_v) + config.n) // (32 * config.warps)
    if sums > 160:
        return f"{sums} accumulators per thread"
    shared = attention_shared_bytes(unit, config)
    if shared > gpu.block_shared_bytes:
        return f"{shared} bytes of shared memory, {gpu.block_shared_bytes} are there"
    return None


def attention_shared_bytes(unit: Attention, config: Config) -> int:
    """Return the most shared memory of a block: query, staged keys and values, weights."""
    item = ITEM_BYTES[unit.dtype]
    step = config.n * (padded(unit.dim) + padded(unit.dim_v)) * item
    query = config.m * padded(unit.dim) * item
    return query + step * max(1, config.stages) + config.m * config.n * item


def sums_per_thread(config: Config) -> int:
    """Return the float32 accumulators of each thread."""
    return config.m * config.n // (32 * config.warps)


def shared_bytes(c: Contraction, config: Config, gpu: Gpu) -> int:
    """Return the most shared memory of a block: the stages (one fewer if operands go through
    registers), or the tile before it is stored, if that is larger."""
    step = (config.m + config.n) * config.k * c.item_bytes
    stages = config.stages if uses_wgmma(c, config, gpu) else max(1, config.stages - 1)
    if config.template == "persistent":  # the tile has its own memory beside the stages
        return step * stages + config.m * config.n * c.out_bytes // 2 + 1024
    return max(step * stages, config.m * config.n * 4)


def uses_wgmma(c: Contraction, config: Config, gpu: Gpu) -> bool:
    """Whether warp groups multiply from shared memory."""
    return gpu.has_wgmma and c.math != "ieee" and config.m >= 64 and config.warps % 4 == 0


def layouts(c: Contraction) -> tuple[Layout, ...]:
    """Return weight layouts, the better first. 32-bit operands need the sum axis contiguous (tensor
    cores read them so, 16-bit ones both ways), and loads need 16-byte rows."""
    if not c.free_layout:
        return ("kn",)
    aligned_n = c.n * c.item_bytes % 16 == 0
    aligned_k = c.k * c.item_bytes % 16 == 0
    if aligned_k and (c.item_bytes == 4 or not aligned_n):
        return ("nk", "kn")
    return ("kn", "nk")


def _tiles(unit: Unit, c: Contraction, gpu: Gpu) -> Iterator[Config]:
    template: Template = "conv2d" if isinstance(unit, Conv2d) else "matmul"
    rows = [s for s in _SIDES if s <= padded(c.m)]
    columns = [s for s in _SIDES if s <= padded(c.n)]
    for m, n, k in itertools.product(rows, columns, _steps(c)):
        depths = (1, *_STAGES) if c.gathers(k) and c.steps(k) == 1 else _STAGES
        for split, warps, stages in itertools.product(_splits(c, m, n, k, gpu), (2, 4, 8), depths):
            if not _sensible(m, n, warps):
                continue
            if stages > 2 and stages > -(-c.steps(k) // split) + 1:
                continue  # deeper than the loop is long
            yield Config(
                template=template,
                m=m,
                n=n,
                k=k,
                split=split,
                stages=stages,
                warps=warps,
                group=_group(c, m, n, gpu),
                layout=layouts(c)[0],
            )


def _persistent(c: Contraction, gpu: Gpu) -> Iterator[Config]:
    """Yield large tiles, if there are enough of them for the multiprocessors."""
    sides = ((64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128))
    for (m, n), stages, warps in itertools.product(sides, (3, 4, 5), (4, 8)):
        tiles = -(-c.m // m) * -(-c.n // n)
        if 2 * tiles >= gpu.sms and _sensible(m, n, warps) and c.math in ("tensor", "tf32"):
            yield Config(
                template="persistent",
                m=m,
                n=n,
                k=128 // c.item_bytes,
                split=gpu.sms,
                stages=stages,
                warps=warps,
                group=_group(c, m, n, gpu),
                layout=layouts(c)[0],
            )


def _steps(c: Contraction) -> list[int]:
    """Return sizes of a main loop's step: 32 to 256 bytes, none much longer than the sum."""
    sizes = [s for s in (16, 32, 64, 128) if 32 <= s * c.item_bytes <= 256]
    sizes = [s for s in sizes if s <= padded(c.k)]
    if c.math == "tf32x3":  # three operands of each kind in registers
        sizes = [s for s in sizes if s <= 32]
    whole = [s for s in sizes if not c.gathers(s)]
    # values addressed one by one: only if taps are narrow, and not in wide steps
    narrow = c.channels * c.item_bytes < 128
    gathered = [s for s in sizes if c.gathers(s) and (narrow or not whole) and s <= 64]
    return sorted(whole + gathered)


def _splits(c: Contraction, m: int, n: int, k: int, gpu: Gpu) -> list[int]:
    """Return possible splits of a sum: at least two steps each, at most three blocks per SM."""
    tiles = -(-c.m // m) * -(-c.n // n) * c.count
    steps = c.steps(k)
    return [
        split
        for split in _SPLITS
        if split == 1 or (steps // split >= 2 and tiles * split <= gpu.sms * 3)
    ]


def _sensible(m: int, n: int, warps: int) -> bool:
    """Whether the tile has few warps if it is small, and many if it is large."""
    if warps == 2:
        return m * n <= 32 * 64
    if warps == 8:
        return m * n >= 64 * 128
    return True


def _group(c: Contraction, m: int, n: int, gpu: Gpu) -> int:
    """Return the band of tile rows for the L2 cache; a single wave shares everything anyway."""
    tiles_m, tiles_n = -(-c.m // m), -(-c.n // n)
    return 8 if tiles_m * tiles_n * c.count > 2 * gpu.sms and tiles_m > 8 and tiles_n > 1 else 1


def _stretches(unit: Matmul, gpu: Gpu) -> Iterator[Config]:
    """Yield weight columns and lengths of the sum for products with few rows."""
    lengths = [k for k in (256, 512, 1024, 2048, 4096) if k < 2 * unit.k]
    for n, k, warps in itertools.product((1, 2, 4, 8, 16), lengths, (2, 4, 8)):
        steps, tiles = -(-unit.k // k), -(-unit.n // n) * unit.m * unit.batches
        for split in _SPLITS:
            if split > 1 and (split > steps or tiles * split > gpu.sms * 8):
                continue
            if n * k >= 8 * 32 * warps // ITEM_BYTES[unit.dtype]:  # 16 bytes per thread at least
                yield Config(
                    template="matvec",
                    m=1,
                    n=n,
                    k=k,
                    split=split,
                    warps=warps,
                    stages=2,
                    layout="nk",
                )


def _attention(unit: Attention) -> Iterator[Config]:
    rows = [s for s in (16, 32, 64, 128) if s <= padded(unit.queries)]
    columns = [s for s in (16, 32, 64, 128, 256) if s <= padded(unit.keys)]
    for m, n, warps, stages in itertools.product(rows, columns, (2, 4, 8), (1, 2, 3)):
        if warps * 16 <= max(m, 32) and (stages == 1 or n < unit.keys):
            yield Config(template="attention", m=m, n=n, stages=stages, warps=warps)


def _rows(template: Template, unit: Softmax | Norm) -> Iterator[Config]:
    """Yield whole rows if they fit a block's registers, otherwise pieces of 2048 values."""
    whole = max(16, 1 << (unit.columns - 1).bit_length())
    widths = [whole] if whole <= 8192 else [2048, 4096]
    for n, m, warps in itertools.product(widths, (1, 2, 4, 8, 16), (1, 2, 4, 8, 16)):
        if m <= 2 * unit.rows and m * n >= 32 * warps:
            yield Config(template=template, m=m, n=n, warps=warps, stages=1)


def _groups(unit: GroupNorm) -> Iterator[Config]:
    """Yield tiles of pixels and of whole groups: some hold the image, others pass it twice."""
    each = width_of_group(unit)
    counts = [g for g in (1, 2, 4, 8, 16, 32, 64) if g == 1 or g < 2 * unit.groups]
    counts = [g for g in counts if g == 1 or g * each <= _MOST_COLUMNS]
    rows = [m for m in (16, 32, 64, 128, 256, 512, 1024) if m == 16 or m < 2 * unit.pixels]
    for m, g, warps in itertools.product(rows, counts, (1, 2, 4, 8, 16)):
        if m * g * each >= 32 * warps:
            yield Config(template="group_norm", m=m, n=g * each, warps=warps, stages=1)


def _pixel_tiles(template: Template, p: int, q: int, channels: int) -> Iterator[Config]:
    """Yield tiles of pixels in two dimensions, `k` wide."""
    widths = [s for s in (1, 2, 4, 8, 16, 32) if s < 2 * q]
    columns = [s for s in (8, 16, 32, 64, 128, 256) if s < 2 * channels]
    for k, down, n in itertools.product(widths, (1, 2, 4, 8), columns or [8]):
        if down < 2 * p:
            for warps in (1, 2, 4, 8):
                if 2 * 32 * warps <= k * down * n <= 32 * 32 * warps:
                    yield Config(template=template, m=k * down, n=n, k=k, warps=warps, stages=1)
