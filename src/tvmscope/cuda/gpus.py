"""The GPUs for which kernels are planned: limits of a block, and rates of memory and arithmetic.

Limits are those of the CUDA programming guide's table of compute capabilities; rates are the
vendors' datasheets' (dense), except the H200's memory and L2 rates, which were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        """Whether warp groups can multiply from shared memory."""
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
    )
}  # fmt: skip


def gpu_of(arch: str) -> Gpu:
    """Return the table's GPU for an architecture such as `sm_90`."""
    try:
        return GPUS[arch]
    except KeyError:
        known = ", ".join(GPUS)
        raise UsageError(
            msg(
                "no kernels can be planned for '{arch}': known architectures are {known}",
                arch=arch,
                known=known,
            )
        ) from None
