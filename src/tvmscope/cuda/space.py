"""All configurations of a unit that a GPU can run: the space that the cost model ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tvmscope.cuda.config import Config, Layout, Template
from tvmscope.cuda.contraction import Contraction, contraction_of
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.units import Conv2d, Unit

_SIDES = (16, 32, 64, 128, 256)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_STAGES = (2, 3, 4, 5, 6)
_MOST_SUMS = 128
"""Accumulators per thread: with operands and addresses about 200 of 255 registers."""


def configs(unit: Unit, gpu: Gpu) -> Iterator[Config]:
    """Every legal configuration, in no particular order."""
    contraction = contraction_of(unit)
    if contraction is not None:
        yield from _tiles(unit, contraction, gpu)


def why_illegal(unit: Unit, config: Config, gpu: Gpu) -> str | None:
    """What a configuration breaks on that GPU, or None."""
    contraction = contraction_of(unit)
    if contraction is None:
        return f"{config.template} does not compute {unit.kind}"
    c = contraction
    if config.template != ("conv2d" if isinstance(unit, Conv2d) else "matmul"):
        return f"{config.template} does not compute {unit.kind}"
    for name, side in (("m", config.m), ("n", config.n), ("k", config.k)):
        if side < 16 or side & (side - 1):
            return f"tile {name} is {side}, not a power of two from 16"
    if sums_per_thread(config) > _most_sums(c):
        return f"{sums_per_thread(config)} accumulators per thread"
    shared = shared_bytes(c, config, gpu)
    if shared > gpu.block_shared_bytes:
        return f"{shared} bytes of shared memory, {gpu.block_shared_bytes} are there"
    each = -(-c.steps(config.k) // config.split)
    if config.split > 1 and (config.split - 1) * each >= c.steps(config.k):
        return f"split {config.split} leaves a part of the sum empty"
    if config.pdl and not gpu.has_dependent_launch:
        return f"{gpu.arch} has no programmatic dependent launch"
    if config.layout == "nk" and not c.free_layout:
        return "only a weight can be packed"
    return None


def sums_per_thread(config: Config) -> int:
    """float32 accumulators that each thread holds."""
    return config.m * config.n // (32 * config.warps)


def shared_bytes(c: Contraction, config: Config, gpu: Gpu) -> int:
    """Shared memory of a block, at most: the stages (one fewer where operands go through
    registers), or the tile on its way to memory if that is more."""
    step = (config.m + config.n) * config.k * c.item_bytes
    stages = config.stages if uses_wgmma(c, config, gpu) else max(1, config.stages - 1)
    return max(step * stages, config.m * config.n * 4)


def uses_wgmma(c: Contraction, config: Config, gpu: Gpu) -> bool:
    """Whether warp groups multiply out of shared memory."""
    return gpu.has_wgmma and c.math != "ieee" and config.m >= 64 and config.warps % 4 == 0


def layouts(c: Contraction) -> tuple[Layout, ...]:
    """Weight layouts, the better first. 32-bit operands want the sum axis contiguous (tensor cores
    read them so, 16-bit ones both ways), and loads want 16-byte rows."""
    if not c.free_layout:
        return ("kn",)
    aligned_n = c.n * c.item_bytes % 16 == 0
    aligned_k = c.k * c.item_bytes % 16 == 0
    if aligned_k and (c.item_bytes == 4 or not aligned_n):
        return ("nk", "kn")
    return ("kn", "nk")


def _most_sums(c: Contraction) -> int:
    return 64 if c.math in ("ieee", "tf32x3") else _MOST_SUMS


def _tiles(unit: Unit, c: Contraction, gpu: Gpu) -> Iterator[Config]:
    template: Template = "conv2d" if isinstance(unit, Conv2d) else "matmul"
    rows = [s for s in _SIDES if s <= _fitting(c.m)]
    columns = [s for s in _SIDES if s <= _fitting(c.n)]
    for m, n, k in itertools.product(rows, columns, _steps(c)):
        for split, warps, stages in itertools.product(_splits(c, m, n, k, gpu), (2, 4, 8), _STAGES):
            if not _sensible(m, n, warps):
                continue
            if stages > 2 and stages > -(-c.steps(k) // split) + 1:
                continue  # deeper than the loop is long
            config = Config(
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
            if why_illegal(unit, config, gpu) is None:
                yield config


def _fitting(size: int) -> int:
    """The smallest side that covers `size`."""
    return max(16, 1 << (size - 1).bit_length())


def _steps(c: Contraction) -> list[int]:
    """Sizes of a main loop's step: 32 to 256 bytes; none that wastes more than the sum has."""
    sizes = [s for s in (16, 32, 64, 128) if 32 <= s * c.item_bytes <= 256]
    sizes = [s for s in sizes if s <= _fitting(c.k)]
    whole = [s for s in sizes if not c.gathers(s)]
    # values placed one by one: only where taps are narrow, and not in wide steps
    narrow = c.channels * c.item_bytes < 128
    gathered = [s for s in sizes if c.gathers(s) and (narrow or not whole) and s <= 64]
    return sorted(whole + gathered)


def _splits(c: Contraction, m: int, n: int, k: int, gpu: Gpu) -> list[int]:
    tiles = -(-c.m // m) * -(-c.n // n) * c.count
    steps, out = c.steps(k), [1]
    for split in _SPLITS[1:]:
        each = -(-steps // split)
        if each < 2 or (split - 1) * each >= steps:
            continue
        if tiles * split > gpu.sms * 3:
            continue
        out.append(split)
    return out


def _sensible(m: int, n: int, warps: int) -> bool:
    """Few warps for small tiles, many for large ones."""
    if warps == 2:
        return m * n <= 32 * 64
    if warps == 8:
        return m * n >= 64 * 128
    return True


def _group(c: Contraction, m: int, n: int, gpu: Gpu) -> int:
    """Band of tile rows for the L2 cache; a single wave shares everything anyway."""
    tiles_m, tiles_n = -(-c.m // m), -(-c.n // n)
    return 8 if tiles_m * tiles_n * c.count > 2 * gpu.sms and tiles_m > 8 and tiles_n > 1 else 1
