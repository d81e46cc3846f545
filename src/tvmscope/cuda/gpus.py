"""The GPUs for which kernels are planned: limits of a block, and rates of memory and arithmetic.

Limits are those of the CUDA programming guide's table of compute capabilities; rates are the
vendors' datasheets' (dense), except the H200's memory and L2 rates, which were measured. The L2
rates of the B200 and the RTX 5090 are the H200's and the RTX 4090's, scaled by multiprocessors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvmscope.errors import UsageError
from tvmscope.messages import msg


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One kind of GPU. Bytes per microsecond and operations per microsecond are what a whole GPU
    reaches; `sm_` values are per multiprocessor."""

    name: str
    arch: str
    sms: int
    sm_shared_bytes: int
    block_shared_bytes: int
    sm_warps: int
    sm_blocks: int
    l2_bytes: int
    hbm_bytes_per_us: float
    l2_bytes_per_us: float
    sm_bytes_per_us: float
    """The bytes that one multiprocessor can read from the L2 cache if the others are idle."""
    half_flops_per_us: float
    """float16 or bfloat16 products with float32 sums, on tensor cores; TF32 is half of it."""
    fma_flops_per_us: float
    launch_us: float
    """The time of a nearly empty kernel in a CUDA graph of such kernels."""
    latency_us: float
    """The time from a load that misses the L1 cache to its data."""

    @property
    def capability(self) -> int:
        """The compute capability: 90 for sm_90."""
        return int(self.arch.removeprefix("sm_"))

    @property
    def has_wgmma(self) -> bool:
        """Whether warp groups can multiply from shared memory: by wgmma, since sm_100 tcgen05."""
        return self.capability // 10 in (9, 10, 11)

    @property
    def has_persistent(self) -> bool:
        """Whether the template `persistent` is for it, which was written and measured on sm_90."""
        return self.capability == 90

    @property
    def has_dependent_launch(self) -> bool:
        """Whether a kernel may start before its predecessor has ended."""
        return self.capability >= 90


_KIB = 1024
GPUS: dict[str, Gpu] = {
    gpu.arch: gpu
    for gpu in (
        Gpu(
            name="A100", arch="sm_80", sms=108, sm_shared_bytes=164 * _KIB,
            block_shared_bytes=163 * _KIB, sm_warps=64, sm_blocks=32, l2_bytes=40 << 20,
            hbm_bytes_per_us=1.8e6, l2_bytes_per_us=4.0e6, sm_bytes_per_us=60e3,
            half_flops_per_us=312e6, fma_flops_per_us=19.5e6, launch_us=1.8, latency_us=0.5,
        ),
        Gpu(
            name="RTX 3090", arch="sm_86", sms=82, sm_shared_bytes=100 * _KIB,
            block_shared_bytes=99 * _KIB, sm_warps=48, sm_blocks=16, l2_bytes=6 << 20,
            hbm_bytes_per_us=0.85e6, l2_bytes_per_us=2.2e6, sm_bytes_per_us=55e3,
            half_flops_per_us=71e6, fma_flops_per_us=35e6, launch_us=1.8, latency_us=0.5,
        ),
        Gpu(
            name="RTX 4090", arch="sm_89", sms=128, sm_shared_bytes=100 * _KIB,
            block_shared_bytes=99 * _KIB, sm_warps=48, sm_blocks=24, l2_bytes=72 << 20,
            hbm_bytes_per_us=0.95e6, l2_bytes_per_us=4.5e6, sm_bytes_per_us=75e3,
            half_flops_per_us=165e6, fma_flops_per_us=82e6, launch_us=1.6, latency_us=0.45,
        ),
        Gpu(
            name="H200", arch="sm_90", sms=132, sm_shared_bytes=228 * _KIB,
            block_shared_bytes=227 * _KIB, sm_warps=64, sm_blocks=32, l2_bytes=60 << 20,
            hbm_bytes_per_us=4.3e6, l2_bytes_per_us=6.5e6, sm_bytes_per_us=90e3,
            half_flops_per_us=990e6, fma_flops_per_us=67e6, launch_us=1.5, latency_us=0.45,
        ),
        Gpu(
            name="B200", arch="sm_100", sms=148, sm_shared_bytes=228 * _KIB,
            block_shared_bytes=227 * _KIB, sm_warps=64, sm_blocks=32, l2_bytes=126 << 20,
            hbm_bytes_per_us=7.0e6, l2_bytes_per_us=7.3e6, sm_bytes_per_us=90e3,
            half_flops_per_us=2250e6, fma_flops_per_us=75e6, launch_us=1.5, latency_us=0.45,
        ),
        Gpu(
            name="RTX 5090", arch="sm_120", sms=170, sm_shared_bytes=100 * _KIB,
            block_shared_bytes=99 * _KIB, sm_warps=48, sm_blocks=24, l2_bytes=96 << 20,
            hbm_bytes_per_us=1.6e6, l2_bytes_per_us=6.0e6, sm_bytes_per_us=75e3,
            half_flops_per_us=209e6, fma_flops_per_us=104e6, launch_us=1.6, latency_us=0.45,
        ),
    )
}  # fmt: skip


_RESERVED_BYTES = _KIB
"""Shared memory of a multiprocessor that no block may have: the system reserves it per block."""


def gpu_of(arch: str) -> Gpu:
    """Return the table's GPU for an architecture such as `sm_90`; for one that is not in the table
    (`sm_87`, `sm_121`), the next older one: its limits hold there, its rates are a guess."""
    match = re.fullmatch(r"sm_(\d+)", arch)
    older = [gpu for gpu in GPUS.values() if match and gpu.capability <= int(match[1])]
    if not older:
        known = ", ".join(GPUS)
        raise UsageError(
            msg(
                "no kernels can be planned for '{arch}': known architectures are {known}",
                arch=arch,
                known=known,
            )
        )
    return replace(max(older, key=lambda gpu: gpu.capability), arch=arch)


def gpu_with(arch: str, attrs: Mapping[str, int]) -> Gpu:
    """Return the GPU of an architecture with what the driver says about one device, if it does.

    The table has one GPU per architecture, and an RTX 3060 has a third of an RTX 3090's
    multiprocessors. Rates of the whole GPU are scaled by them, memory included: the driver does not
    say what it reaches, and products of one architecture have it in about that proportion.
    """
    gpu = gpu_of(arch)
    share = attrs.get("multiprocessors", gpu.sms) / gpu.sms
    wanted = attrs.get("max_shared_memory_per_block_optin", gpu.block_shared_bytes)
    block_bytes = min(wanted, gpu.block_shared_bytes)  # the compiler checks by the architecture
    return replace(
        gpu,
        sms=attrs.get("multiprocessors", gpu.sms),
        block_shared_bytes=block_bytes,
        sm_shared_bytes=block_bytes + _RESERVED_BYTES,
        l2_bytes=attrs.get("l2_cache_size_bytes", gpu.l2_bytes),
        hbm_bytes_per_us=gpu.hbm_bytes_per_us * share,
        l2_bytes_per_us=gpu.l2_bytes_per_us * share,
        half_flops_per_us=gpu.half_flops_per_us * share,
        fma_flops_per_us=gpu.fma_flops_per_us * share,
    )
