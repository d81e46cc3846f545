"""Computes the distance of each kernel from the machine's measured roofs.

The least time of a kernel is the larger of its flops over the compute roof and its bytes over the
bandwidth roof. Which bandwidth: what fits the outermost cache may have stayed there since the
kernel before it, everything else comes from DRAM. The probed sizes are lower limits of the real
caches, so a kernel that is faster than its level allows has had its data in the next faster one
and is held against that. Only a kernel above the fastest level, or above the compute roof, is
impossible: then a roof, a time or a count of ours is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tvmscope.core.profile import KernelTime, Products, Profile, Roof
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session

Bound = Literal["compute", "memory", "neither"]

NEAR = 0.5
"""Below half of the limiting roof, a kernel is limited by something other than the roof."""
TOLERANCE = 1.05
"""Roofs and kernel times repeat within a few percent; only a larger excess is an error."""
_TF32_PRODUCTS: dict[Products, int] = {"tf32": 1, "tf32x3": 3}
"""How many products of TF32 a product of float32 numbers takes."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A kernel under the roofs."""

    key: RowKey
    kernel: str
    intensity: float
    """Flops per byte."""
    flops_per_s: float
    bound: Bound
    share: float
    """The share of the limiting roof: the least time over the measured time."""
    above: bool
    """Whether it is faster than the roofs allow, which is an error of ours."""
    total_s: float


@dataclass(frozen=True)
class Level:
    """A bandwidth, and the amount of data for which it was measured."""

    bytes_per_s: float
    size_bytes: int | None


@dataclass(frozen=True)
class Limits:
    """The roofs over one profile."""

    flops_per_s: float | None
    levels: tuple[Level, ...]
    """From the slowest memory to the fastest cache."""
    tf32_per_s: float | None = None
    """The rate of tensor cores that round float32 numbers to TF32."""

    def least_s(self, kernel: KernelTime) -> float | None:
        """Return the least time that the roofs allow for all calls; None if nothing is known."""
        times = [t for t in (self.compute_s(kernel), self.memory_s(kernel)) if t is not None]
        return max(times, default=None)

    def compute_s(self, kernel: KernelTime) -> float | None:
        """Return the time that its flops take at the compute roof."""
        rate = self.rate(kernel.products)
        return None if rate is None or kernel.flops is None else kernel.flops / rate

    def rate(self, products: Products | None) -> float | None:
        """Return the compute roof of kernels that form products in this way."""
        if products is None:
            return self.flops_per_s
        return None if self.tf32_per_s is None else self.tf32_per_s / _TF32_PRODUCTS[products]

    def memory_s(self, kernel: KernelTime) -> float | None:
        """Return the time that its bytes take from the memory they must have come from."""
        if not self.levels or kernel.bytes is None:
            return None
        allowed = [
            kernel.bytes / level.bytes_per_s
            for level in self._candidates(kernel.bytes, kernel.calls)
        ]
        possible = (t for t in allowed if t <= kernel.total_s * TOLERANCE)
        return next(possible, allowed[-1])

    def _candidates(self, total: float, calls: int) -> tuple[Level, ...]:
        if len(self.levels) > 1:
            cache = self.levels[1].size_bytes
            if cache is not None and total / max(calls, 1) <= cache:
                return self.levels[1:]
        return self.levels


def limits(session: Session, profile: Profile, threads: int | None = None) -> Limits:
    """Return the roofs for a profile's device, precision and threads (or the given ones).

    What fewer threads can do, more can too: the best roof of up to that many threads counts.
    """
    dtype, device = profile.key.precision.dtype, profile.key.device
    if threads is None:
        row = session.result_of(profile)
        threads = row.task.threads if row else session.environment.threads
    return limits_of(session.roofs, dtype, threads, device)


def limits_of(roofs: Iterable[Roof], dtype: str, threads: int, device: str = "cpu") -> Limits:
    """Return the same limits for a machine's roofs alone."""
    fitting = [r for r in roofs if r.device == device and (device != "cpu" or r.threads <= threads)]
    of_type = [r for r in fitting if r.flops_per_s is not None and r.dtype == dtype]

    def best(products: str | None) -> float | None:
        rates = (r.flops_per_s for r in of_type if r.products == products)
        return max((rate for rate in rates if rate is not None), default=None)

    return Limits(best(None), _levels(fitting), best("tf32"))


def _levels(roofs: list[Roof]) -> tuple[Level, ...]:
    best: dict[str, Level] = {}
    for roof in roofs:
        if roof.bytes_per_s is None:
            continue
        name = roof.level or roof.how
        if name not in best or best[name].bytes_per_s < roof.bytes_per_s:
            best[name] = Level(roof.bytes_per_s, roof.size_bytes)
    return tuple(sorted(best.values(), key=lambda level: level.bytes_per_s))


def points(session: Session) -> tuple[Point, ...]:
    """Return every kernel whose flops, bytes and roofs are known."""
    found = []
    for profile in session.profiles:
        roofs = limits(session, profile)
        found += [p for k in profile.kernels if (p := _point(profile.key, k, roofs))]
    return tuple(found)


def _point(key: RowKey, kernel: KernelTime, roofs: Limits) -> Point | None:
    compute, memory = roofs.compute_s(kernel), roofs.memory_s(kernel)
    if not (compute and memory and kernel.flops and kernel.bytes and kernel.total_s > 0):
        return None
    share = max(compute, memory) / kernel.total_s
    return Point(
        key=key,
        kernel=kernel.name,
        intensity=kernel.flops / kernel.bytes,
        flops_per_s=kernel.flops / kernel.total_s,
        bound="neither" if share < NEAR else "compute" if compute >= memory else "memory",
        share=share,
        above=share > TOLERANCE,
        total_s=kernel.total_s,
    )
