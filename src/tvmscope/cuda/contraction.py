"""Convolutions and matrix products in one form: rows x columns x sum, a number of times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

from tvmscope.cuda.units import ITEM_BYTES, Conv2d, Matmul, Unit


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """The product that a unit's tiles cover; there are `count` independent ones."""

    m: int
    n: int
    k: int
    count: int
    dtype: str
    math: str
    taps: int
    """Positions of a convolution's window; 1 for matrix products."""
    channels: int
    """Values per tap."""
    load_bytes: int
    """The widest aligned load of a convolution's input; 16 for matrices, whose rows are not
    considered."""
    residual: bool
    out_bytes: int
    """Bytes of one output value."""
    weight_bytes: int
    moved_bytes: int
    pooled: int
    """The rows that one stored row has: those of a pooled window."""
    free_layout: bool
    """Whether the right side is a weight that can be packed in either layout."""

    @cached_property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.count

    def gathers(self, tile_k: int) -> bool:
        """Whether a step of the main loop crosses taps, so that each value has its own address."""
        return self.taps > 1 and self.channels % tile_k != 0

    def steps(self, tile_k: int) -> int:
        """Return the steps of the main loop without split-K."""
        return -(-self.k // tile_k)


@lru_cache(maxsize=256)
def contraction_of(unit: Unit) -> Contraction | None:
    """Return the unit as a contraction; None if it is not one."""
    if isinstance(unit, Conv2d):
        groups, output = unit.groups, unit.epilogue.output or unit.dtype
        m, n, k, count = unit.m, unit.oc // groups, unit.k, groups
        taps, channels, free = unit.r * unit.s, unit.c // groups, True
        load_bytes = gcd(16, channels * ITEM_BYTES[unit.dtype])
        pooled = 1 if unit.pooled is None else unit.pooled.rows
    elif isinstance(unit, Matmul):
        output = unit.epilogue.output or unit.dtype
        m, n, k, count = unit.m, unit.n, unit.k, unit.batches
        taps, channels, free, load_bytes = 1, unit.k, unit.weight, 16
        pooled = 1
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
        load_bytes=load_bytes,
        residual=unit.epilogue.residual != "none",
        out_bytes=ITEM_BYTES[output],
        weight_bytes=weight.size_bytes if weight else 0,
        moved_bytes=unit.moved_bytes,
        pooled=pooled,
        free_layout=free,
    )
