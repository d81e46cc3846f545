"""A small explicit model of a kernel's time, which ranks configurations before any is measured.

A block runs some steps. A step takes as long as the slowest of: its bytes through the
multiprocessor's share of the L2 cache, its arithmetic, and the latency of a load divided by the
stages that hide it. Blocks on one multiprocessor share the first two and overlap the third; rounds
of blocks follow each other. Launch, the first loads, split-K's exchange and the stores come on top.

The constants are fitted to measured kernels in float16 on an H200: first to the convolutions of
ResNet-50 at batch 1 (2.0 us for a product of one step; 3.8 us for 98 blocks of nine steps of 12 KB;
4.7 us for 52 blocks of nine steps of 24 KB; 5.8 us with split-K 4, 6.1 us with 8), then to 3,360
candidates of 336 units of the built-in models at batches 1 and 32. There the first choice takes
1.10 times as long as the best candidate that was measured (geometric mean; 1.06 for convolutions at
batch 32, 1.3 for depthwise ones). Other architectures take their own rates.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache

from tvmscope.cuda.binding import bind, padded, width_of_group
from tvmscope.cuda.config import Config
from tvmscope.cuda.contraction import Contraction, contraction_of
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.space import (
    attention_shared_bytes,
    configs,
    shared_bytes,
    sums_per_thread,
    uses_wgmma,
)
from tvmscope.cuda.units import ITEM_BYTES, Attention, Conv2d, GroupNorm, Matmul, Norm, Pool, Unit

_WGMMA_SHARE = 0.80
_MMA_SHARE = 0.62
"""The share of the tensor cores' rate that generated code reaches; Hopper's mma has half."""
_SPLIT_US = 0.9
"""The time to store a part, count it, and detect the last one; its loads are extra."""
_ROUND_US = 0.7
"""The time between two blocks on the same multiprocessor: first loads, last stores."""
_STEP_US = 0.06
_LOAD_US = 0.014
"""A step's barriers, and each of its 16-byte loads per thread with its address and predicate; the
instructions of one warp are sequential, those of other blocks fill the gaps."""
_MMA_STEP_US = 0.03
"""Without warp groups, operands go through registers: each 16 values of the sum wait for theirs."""
_DESCRIPTORS_US = 1.5
"""Not measured: the time to build descriptors for the tensor memory accelerator."""
_FEW_SUMS, _FEW_SUMS_SHARE = 64, 0.85
"""With so few sums per thread, warp groups wait for each other: 128 rows and columns take 0.79 to
0.91 times as long with 4 warps as with 8."""
_BLOCK_US = 0.0004
"""The time to start a block, which matters from a thousand blocks on (pools of 338, 676 and 1,352
blocks take 1.7, 2.2 and 3.0 us)."""
_GATHER = 2.0
"""Loads whose taps differ from value to value take more instructions."""
_LEAST_COPY_BYTES = 4
"""Narrower loads cannot be asynchronous copies: no stages hide their latency."""
_FAR = 0.7
"""The share of a window's bytes that plain loads take from the L2 cache; asynchronous copies of 16
bytes take all of them from there."""
_LANES_PER_US = 2.2e5
"""Plain instructions of a multiprocessor (128 lanes, 1.7 GHz); as many bytes leave its L1 cache."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The model's time and its components."""

    config: Config
    us: float
    blocks: int
    rounds: int
    bound: str
    """The limit of a step: `l2`, `math`, `latency`, or `hbm` if memory limits the whole unit."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One block in the model."""

    blocks: int
    steps: float
    step_bytes: float
    """Bytes of a step through the L2 cache."""
    math_us: float
    """The arithmetic of a step on a whole multiprocessor."""
    issue_us: float
    """The least time of a step for one block alone."""
    stages: int
    warps: int
    registers: float
    shared_bytes: int
    store_bytes: float
    split: int = 1
    part_bytes: float = 0.0
    round_us: float = _ROUND_US
    start_us: float = 0.0


def estimates(unit: Unit, gpu: Gpu) -> list[Estimate]:
    """Return every legal configuration with its estimated time."""
    return [estimate(unit, config, gpu) for config in configs(unit, gpu)]


def estimate(unit: Unit, config: Config, gpu: Gpu) -> Estimate:
    """Return the estimated time of one configuration."""
    return _time(unit, config, _work(unit, config, gpu), gpu)


def _time(unit: Unit, config: Config, work: _Work, gpu: Gpu) -> Estimate:
    per_sm = math.ceil(work.blocks / gpu.sms)
    resident = _resident(work, gpu)
    rounds = math.ceil(per_sm / resident)
    # the fullest multiprocessor reads its bytes, and the L2 cache supplies those of all
    per_byte_us = max(per_sm / gpu.sm_bytes_per_us, work.blocks / gpu.l2_bytes_per_us)
    l2_us = work.step_bytes * per_byte_us
    math_us = work.math_us / min(1.0, work.warps * min(per_sm, resident) / 4)  # four quarters each
    latency_us = gpu.latency_us / max(1, min(work.stages - 1, work.steps))
    shared_us = max(l2_us, per_sm * math_us)
    alone_us = rounds * max(latency_us, work.issue_us)
    loop_us = gpu.latency_us + max(shared_us * work.steps, alone_us * (work.steps - 1))

    us = loop_us + work.store_bytes * per_byte_us + (rounds - 1) * work.round_us
    if work.split > 1:
        last_us = (
            work.split
            * work.part_bytes
            / min(gpu.sm_bytes_per_us, gpu.l2_bytes_per_us * work.split / work.blocks)
        )
        us += _SPLIT_US + work.part_bytes * per_byte_us + last_us
    bound = "latency" if alone_us > shared_us else "l2" if l2_us > per_sm * math_us else "math"
    hbm_us = _hbm_bytes(unit, gpu) / gpu.hbm_bytes_per_us
    if hbm_us > us:
        us, bound = hbm_us + 0.05 * us, "hbm"
    us += gpu.launch_us + work.start_us + _BLOCK_US * work.blocks
    return Estimate(config=config, us=us, blocks=work.blocks, rounds=rounds, bound=bound)


@lru_cache(maxsize=256)
def _hbm_bytes(unit: Unit, gpu: Gpu) -> int:
    """Return the bytes from memory: weights always, activations if they do not fit in the L2."""
    if unit.moved_bytes > gpu.l2_bytes // 2:
        return unit.moved_bytes
    weight = unit.tensor("weight")
    return weight.size_bytes if weight else 0


def _resident(work: _Work, gpu: Gpu) -> int:
    """Return how many blocks of this kind a multiprocessor holds at once."""
    return max(
        1,
        min(
            gpu.sm_shared_bytes // (work.shared_bytes + 1024),
            int(65536 // (work.registers * 32 * work.warps)),
            gpu.sm_warps // work.warps,
            gpu.sm_blocks,
        ),
    )


def _work(unit: Unit, config: Config, gpu: Gpu) -> _Work:
    c = contraction_of(unit)
    if c is not None and config.template in ("conv2d", "matmul"):
        return _contraction_work(c, config, gpu)
    if c is not None and config.template == "persistent":
        # no address is computed, the next tile's operands arrive while this one is stored, and one
        # block has the multiprocessor
        plain = _contraction_work(c, dataclasses.replace(config, split=1), gpu)
        return dataclasses.replace(
            plain,
            issue_us=_STEP_US,
            shared_bytes=gpu.block_shared_bytes,
            round_us=0.2,
            start_us=_DESCRIPTORS_US,
        )
    if isinstance(unit, Matmul):
        return _matvec_work(unit, config)
    if isinstance(unit, Attention):
        return _attention_work(unit, config, gpu)
    if isinstance(unit, Conv2d | Pool):
        return _window_work(unit, config)
    if isinstance(unit, GroupNorm):
        return _group_work(unit, config)
    return _row_work(unit, config)


def _contraction_work(c: Contraction, config: Config, gpu: Gpu) -> _Work:
    tiles = -(-c.m // config.m) * -(-c.n // config.n) * c.count
    row_bytes = config.k * c.item_bytes * _short_rows(config.k * c.item_bytes)
    far = _FAR if config.stages == 1 else 1.0
    step_bytes = (config.m * far + config.n) * row_bytes
    left = config.m * config.k * c.item_bytes * (16 / c.load_bytes - 1)
    loads = (step_bytes + left) / 16 / (32 * config.warps)
    loads *= _GATHER if c.gathers(config.k) else 1.0
    wgmma = uses_wgmma(c, config, gpu)
    waits_us = 0.0 if wgmma else _MMA_STEP_US * config.k * c.item_bytes / 32
    return _Work(
        blocks=tiles * config.split,
        steps=-(-c.steps(config.k) // config.split),
        step_bytes=step_bytes,
        math_us=2 * config.m * config.n * config.k / _math_rate(c.math, config, gpu, wgmma),
        issue_us=_STEP_US + _LOAD_US * loads + waits_us,
        stages=config.stages if c.load_bytes >= _LEAST_COPY_BYTES else 1,
        warps=config.warps,
        registers=sums_per_thread(config) * (1.0 if wgmma else 1.3) + 48,
        shared_bytes=shared_bytes(c, config, gpu),
        store_bytes=config.m
        * config.n
        * (c.out_bytes / c.pooled + (c.item_bytes if c.residual else 0)),
        split=config.split,
        part_bytes=config.m * config.n * 4,
    )


def _short_rows(row_bytes: int) -> float:
    """Return the factor of L2 time for rows that are shorter than its lines."""
    return 1.0 if row_bytes >= 128 else 1.1 if row_bytes >= 64 else 1.5


def _math_rate(products: str, config: Config, gpu: Gpu, wgmma: bool) -> float:
    """Return the operations per microsecond of one multiprocessor with this tile."""
    if products == "ieee":
        return 0.5 * gpu.fma_flops_per_us / gpu.sms
    rate = gpu.half_flops_per_us / gpu.sms
    rate /= {"tensor": 1, "tf32": 2, "tf32x3": 6}[products]
    if wgmma:
        # narrow tiles read the left side from shared memory as often as wide ones
        few = config.warps > 4 and sums_per_thread(config) <= _FEW_SUMS
        waits = _FEW_SUMS_SHARE if few else 1.0
        return rate * _WGMMA_SHARE * waits * min(1.0, config.n / 128 + 0.25)
    side = min(config.m, config.n, 64) / 64
    return rate * _MMA_SHARE * (0.4 + 0.6 * side)


def _matvec_work(unit: Matmul, config: Config) -> _Work:
    item = ITEM_BYTES[unit.dtype]
    values = config.n * config.k
    steps = math.ceil(math.ceil(unit.k / config.k) / config.split)
    return _Work(
        blocks=-(-unit.n // config.n) * config.split * unit.m * unit.batches,
        steps=steps,
        step_bytes=values * item + config.k * item,
        math_us=values * 3 / _LANES_PER_US,
        issue_us=_STEP_US + _LOAD_US * values * item / 16 / (32 * config.warps),
        stages=1,  # each step waits for its own loads
        warps=config.warps,
        registers=32 + 1.5 * values / (32 * config.warps),
        shared_bytes=1024,
        store_bytes=0,
        split=config.split,
        part_bytes=config.n * 4,
    )


def _attention_work(unit: Attention, config: Config, gpu: Gpu) -> _Work:
    item, dims = ITEM_BYTES[unit.dtype], padded(unit.dim) + padded(unit.dim_v)
    wgmma = gpu.has_wgmma and unit.math != "ieee" and config.m >= 64 and config.warps % 4 == 0
    scores = config.m * config.n
    return _Work(
        blocks=bind(unit, config).grid[0] * unit.batch * unit.heads,
        steps=-(-unit.keys // config.n) * (0.5 if unit.causal and unit.keys > config.n else 1.0),
        step_bytes=config.n * dims * item,
        math_us=2 * scores * dims / _math_rate(unit.math, config, gpu, wgmma)
        + scores * 12 / _LANES_PER_US,
        # two products, one after the other, and a softmax between them
        issue_us=0.35 + scores * 12 / (32 * config.warps) * 0.0025,
        stages=config.stages,
        warps=config.warps,
        registers=config.m * (padded(unit.dim_v) + 2 * config.n) / (32 * config.warps) + 48,
        shared_bytes=attention_shared_bytes(unit, config),
        store_bytes=config.m * (unit.dim + unit.dim_v) * item,
    )


def _window_work(unit: Conv2d | Pool, config: Config) -> _Work:
    """Model depthwise convolutions and pools: neighbouring windows overlap in the L1 cache."""
    item, values = ITEM_BYTES[unit.dtype], config.m * config.n
    dilation = unit.dilation if isinstance(unit, Conv2d) else (1, 1)
    if config.template == "mean":
        pixels = config.m
        steps, taps = -(-(unit.h * unit.w) // config.m), 1
    else:
        down, across = config.m // config.k, config.k
        rows = (down - 1) * unit.stride[0] + (unit.r - 1) * dilation[0] + 1
        columns = (across - 1) * unit.stride[1] + (unit.s - 1) * dilation[1] + 1
        pixels, steps, taps = rows * columns, 1, unit.r * unit.s
    each = 5 if isinstance(unit, Conv2d) else 3
    # short rows of channels use part of the memory's 32-byte sectors and of a warp's loads
    short = max(1.0, 64 / (config.n * item))
    return _Work(
        blocks=bind(unit, config).grid[0],
        steps=steps,
        step_bytes=pixels * config.n * item * short,
        math_us=values * taps * max(each, item * short) / _LANES_PER_US,
        issue_us=_STEP_US + _LOAD_US * taps * values * item / 16 / (32 * config.warps),
        stages=1,
        warps=config.warps,
        registers=32 + 2 * values / (32 * config.warps),
        shared_bytes=1024,
        store_bytes=values * item,
    )


def _group_work(unit: GroupNorm, config: Config) -> _Work:
    """Model group norms; their constants are those of rows and windows, not fitted to any."""
    item, values = ITEM_BYTES[unit.dtype], config.m * config.n
    groups = min(unit.groups, config.n // width_of_group(unit))
    passes = 1 if unit.pixels <= config.m else 2
    # short rows of channels use part of the memory's 32-byte sectors
    row_bytes = groups * unit.width * item
    short = max(1.0, 64 / row_bytes)
    return _Work(
        blocks=bind(unit, config).grid[0],
        steps=-(-unit.pixels // config.m) * passes,
        step_bytes=min(config.m, unit.pixels) * row_bytes * short,
        math_us=values * 10 / _LANES_PER_US,
        issue_us=_STEP_US + _LOAD_US * values * item / 16 / (32 * config.warps) * short,
        stages=1,
        warps=config.warps,
        registers=32 + (2 if passes == 1 else 4) * values / (32 * config.warps),
        shared_bytes=1024,
        store_bytes=unit.pixels * row_bytes,
    )


def _row_work(unit: Unit, config: Config) -> _Work:
    rows, columns = getattr(unit, "rows", 1), getattr(unit, "columns", 1)
    item, values = ITEM_BYTES[unit.dtype], config.m * config.n
    inputs = 2 if isinstance(unit, Norm) and unit.residual else 1
    steps = -(-columns // config.n)
    passes = 1 if steps == 1 else 3
    return _Work(
        blocks=-(-rows // config.m),
        steps=steps * passes,
        step_bytes=config.m * min(config.n, columns) * item * inputs,
        math_us=values * 10 / _LANES_PER_US,
        issue_us=_STEP_US
        + 0.03 * math.log2(max(2, config.warps))
        + 0.002 * values / 32 / config.warps,
        stages=1,
        warps=config.warps,
        registers=32 + 2 * values / (32 * config.warps),
        shared_bytes=1024,
        store_bytes=config.m * columns * item,
    )
