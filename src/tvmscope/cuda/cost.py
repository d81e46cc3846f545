"""A small explicit model of a kernel's time, which ranks configurations before any is measured.

A block runs `steps` of the main loop. A step takes as long as the slowest of: its bytes through the
multiprocessor's share of the L2 cache, its products on the tensor cores, and the latency of a load
divided by the stages that hide it. Blocks on one multiprocessor share the first two and overlap the
third; rounds of blocks follow each other. Launch, the first loads, split-K's exchange and the
stores come on top.

The constants are fitted to measured convolutions of ResNet-50 in float16 on an H200: at batch 1
(2.0 us for a product of one step; 3.8 us for 98 blocks of nine steps of 12 KB; 4.7 us for 52 blocks
of nine steps of 24 KB; 5.8 us with split-K 4, 6.1 us with 8) and at batch 32 (300 to 480 TFLOP/s
with 128x128 and 64x256 tiles). Other architectures take the same form with their own rates.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from dataclasses import dataclass

from tvmscope.cuda.config import Config
from tvmscope.cuda.contraction import Contraction, contraction_of
from tvmscope.cuda.gpus import Gpu
from tvmscope.cuda.space import configs, layouts, shared_bytes, sums_per_thread, uses_wgmma
from tvmscope.cuda.units import Unit
from tvmscope.errors import UsageError

_WGMMA_SHARE = 0.80
_MMA_SHARE = 0.62
"""How much of the tensor cores' rate generated code reaches; on Hopper mma has half of wgmma's."""
_SPLIT_US = 0.45
"""Store the part, count it, notice that one is last; its loads come on top."""
_ROUND_US = 0.7
"""Between a block and the next on the same multiprocessor: first loads, last stores."""
_STEP_US = 0.03
_LOAD_US = 0.014
"""A step's barriers, and each of its 16-byte loads per thread with its address and predicate; the
instructions of one warp follow each other, those of other blocks fill the gaps."""
_MMA_STEP_US = 0.02
"""Without warp groups operands go through registers: each 16 values of the sum wait for theirs."""
_GATHER = 2.0
"""Loads whose taps differ from value to value take more instructions."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The model's time and what it is made of."""

    config: Config
    us: float
    blocks: int
    rounds: int
    bound: str
    """What limits a step: `l2`, `math`, `latency`, or `hbm` where the whole unit is so limited."""


def best(unit: Unit, gpu: Gpu, n: int = 25) -> list[Estimate]:
    """The `n` most promising configurations, the fastest first, no two alike in all but depth."""
    ranked = heapq.nsmallest(8 * n, estimates(unit, gpu), key=lambda e: (e.us, _order(e.config)))
    if not ranked:
        raise UsageError(f"{unit.label}: no template computes this on {gpu.name}")
    return _with_variants(unit, _diverse(ranked, n), gpu, n)


def estimates(unit: Unit, gpu: Gpu) -> list[Estimate]:
    """Every legal configuration with its estimated time."""
    return [estimate(unit, config, gpu) for config in configs(unit, gpu)]


def estimate(unit: Unit, config: Config, gpu: Gpu) -> Estimate:
    """The time of one configuration."""
    c = contraction_of(unit)
    if c is None:
        raise UsageError(f"{unit.label}: no cost is known for {config.template}")
    return _contraction_estimate(c, config, gpu)


def _contraction_estimate(c: Contraction, config: Config, gpu: Gpu) -> Estimate:
    tiles = -(-c.m // config.m) * -(-c.n // config.n) * c.count
    blocks = tiles * config.split
    steps = -(-c.steps(config.k) // config.split)
    resident = _resident(c, config, gpu)
    per_sm = math.ceil(blocks / gpu.sms)
    rounds = math.ceil(per_sm / resident)
    active = min(blocks, gpu.sms)

    bandwidth = min(gpu.sm_bytes_per_us, gpu.l2_bytes_per_us / active)
    step_bytes = (config.m + config.n) * config.k * c.item_bytes
    l2_us = step_bytes / bandwidth
    math_us = 2 * config.m * config.n * config.k / _math_rate(c, config, gpu)
    math_us /= min(1.0, config.warps * min(per_sm, resident) / 4)  # four tensor cores each
    loads = step_bytes / 16 / (32 * config.warps) * (_GATHER if c.gathers(config.k) else 1.0)
    latency_us = gpu.latency_us / max(1, min(config.stages - 1, steps))
    shared_us = per_sm * max(l2_us, math_us)  # all blocks of a multiprocessor, one way or another
    issue_us = _STEP_US + _LOAD_US * loads
    if not uses_wgmma(c, config, gpu):
        issue_us += _MMA_STEP_US * config.k * c.item_bytes / 32
    alone_us = rounds * max(latency_us, issue_us)
    loop_us = gpu.latency_us + max(shared_us * steps, alone_us * (steps - 1))

    store_bytes = config.m * config.n * (c.out_bytes + (c.item_bytes if c.residual else 0))
    store_us = per_sm * store_bytes / bandwidth
    split_us = 0.0
    if config.split > 1:
        part_us = config.m * config.n * 4 / bandwidth
        split_us = _SPLIT_US + part_us * (per_sm + config.split)
    us = loop_us + store_us + split_us + (rounds - 1) * _ROUND_US
    hbm_us = _hbm_bytes(c, gpu) / gpu.hbm_bytes_per_us
    bound = "latency" if alone_us > shared_us else "l2" if l2_us > math_us else "math"
    if hbm_us > us:
        us, bound = hbm_us + 0.05 * us, "hbm"
    return Estimate(config=config, us=gpu.launch_us + us, blocks=blocks, rounds=rounds, bound=bound)


def _hbm_bytes(c: Contraction, gpu: Gpu) -> int:
    """What must come from memory: weights always, activations when they do not fit in the L2."""
    return c.moved_bytes if c.moved_bytes > gpu.l2_bytes // 2 else c.weight_bytes


def _math_rate(c: Contraction, config: Config, gpu: Gpu) -> float:
    """Operations per microsecond of one multiprocessor with this tile."""
    if c.math == "ieee":
        return 0.5 * gpu.fma_flops_per_us / gpu.sms
    rate = gpu.half_flops_per_us / gpu.sms
    rate /= {"tensor": 1, "tf32": 2, "tf32x3": 6}[c.math]
    if uses_wgmma(c, config, gpu):
        # narrow tiles read the left side from shared memory as often as wide ones
        return rate * _WGMMA_SHARE * min(1.0, config.n / 128 + 0.25)
    side = min(config.m, config.n, 64) / 64
    return rate * _MMA_SHARE * (0.4 + 0.6 * side)


def _resident(c: Contraction, config: Config, gpu: Gpu) -> int:
    """Blocks of this kind that a multiprocessor holds at once."""
    registers = sums_per_thread(config) * (1.0 if uses_wgmma(c, config, gpu) else 1.3) + 48
    return max(
        1,
        min(
            gpu.sm_shared_bytes // (shared_bytes(c, config, gpu) + 1024),
            int(65536 // (registers * 32 * config.warps)),
            gpu.sm_warps // config.warps,
            gpu.sm_blocks,
        ),
    )


def _order(config: Config) -> tuple[int, ...]:
    """Among equals: usual steps and depths first, then fewer parts and smaller blocks; a total
    order, so that the choice does not depend on how the space is walked."""
    return (
        abs(config.k - 64),
        config.split,
        abs(config.stages - 4),
        config.warps,
        config.m * config.n,
        config.m,
        config.stages,
        config.k,
    )


def _diverse(ranked: list[Estimate], n: int) -> list[Estimate]:
    """The first `n`, with at most two depths of the same tile."""
    taken: list[Estimate] = []
    depths: dict[Config, int] = {}
    for candidate in ranked:
        shape = dataclasses.replace(candidate.config, stages=0)
        if depths.setdefault(shape, 0) < 2:
            depths[shape] += 1
            taken.append(candidate)
    return taken[:n]


def _with_variants(unit: Unit, ranked: list[Estimate], gpu: Gpu, n: int) -> list[Estimate]:
    """The last places go to what the model cannot tell apart: the best tiles with the weight packed
    the other way."""
    c = contraction_of(unit)
    if c is None or len(layouts(c)) < 2 or n < 10:
        return ranked
    other = layouts(c)[1]
    twins = [
        dataclasses.replace(e, config=dataclasses.replace(e.config, layout=other))
        for e in ranked[:3]
    ]
    return [*ranked[: n - len(twins)], *twins]
