"""Convolutions and matrix products seen alike: rows x columns x sum, so many times over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from tvmscope.cuda.units import ITEM_BYTES, Conv2d, Matmul, Unit


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """The product that a unit's tiles cover; `count` of them are independent."""

    m: int
    n: int
    k: int
    count: int
    dtype: str
    math: str
    taps: int
    """Positions under a convolution's window; 1 for matrix products."""
    channels: int
    """Values of one tap."""
    residual: bool
    out_bytes: int
    """Of one output value."""
    weight_bytes: int
    moved_bytes: int
    free_layout: bool
    """Whether the right side is a weight that can be packed either way."""

    @cached_property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.count

    def gathers(self, tile_k: int) -> bool:
        """Whether a step of the main loop crosses taps, so that each value is placed alone."""
        return self.taps > 1 and self.channels % tile_k != 0

    def steps(self, tile_k: int) -> int:
        """Steps of the main loop without split-K."""
        return -(-self.k // tile_k)


@lru_cache(maxsize=256)
def contraction_of(unit: Unit) -> Contraction | None:
    """The unit as a contraction, where it is one."""
    if isinstance(unit, Conv2d):
        groups, output = unit.groups, unit.epilogue.output or unit.dtype
        m, n, k, count = unit.m, unit.oc // groups, unit.k, groups
        taps, channels, free = unit.r * unit.s, unit.c // groups, True
    elif isinstance(unit, Matmul):
        output = unit.epilogue.output or unit.dtype
        m, n, k, count = unit.m, unit.n, unit.k, unit.batches
        taps, channels, free = 1, unit.k, unit.weight
    else:
        return None
    weight = unit.tensor("weight")
    return Contraction(
        m=m,
        n=n,
        k=k,
        count=count,
        dtype=unit.dtype,
        math=unit.math,
        taps=taps,
        channels=channels,
        residual=unit.epilogue.residual != "none",
        out_bytes=ITEM_BYTES[output],
        weight_bytes=weight.size_bytes if weight else 0,
        moved_bytes=unit.moved_bytes,
        free_layout=free,
    )
