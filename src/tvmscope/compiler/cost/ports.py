"""The throughput of a CPU core, by its LLVM name: the part of a machine that tiles depend on.

A register tile of `a` vectors of channels x `b` pixels reads `a` vectors of weights and `b` single
values for `a * b` multiply-adds. The numbers here determine how many loads that may be, and how
many sums must be in progress at a time. They come from the vendors' optimization guides, but for
the rate of the second-level cache, which was measured on Emerald Rapids (24) and Zen 5 (46). An
unlisted name gets the numbers of most cores with its vector width; a tile for two multiply-adds a
cycle also works for one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.core.target import Target

_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Ports:
    """A core's limits."""

    fma_bits: int
    """Bits of all multiply-adds that start in a cycle, in at most `fma_pipes` instructions."""
    load_bits: int
    """Bits that the loads of a cycle read from the first-level cache."""
    loads: int
    """Load instructions per cycle; one that broadcasts a single value takes few of these bits."""
    latency: int
    """Cycles until another multiply-add can use the result of one."""
    l1_bytes: int
    l2_bytes: int
    fma_pipes: int = 2
    l2_rate: int = 24
    """Bytes per cycle that a core reads from its second-level cache, line after line."""

    def fmas(self, vector_bits: int) -> float:
        """Return the vector multiply-adds that start in a cycle."""
        return min(self.fma_pipes, self.fma_bits / vector_bits)

    def load_cycles(self, vectors: float, values: float, vector_bits: int) -> float:
        """Return the cycles to load some whole vectors, and to broadcast some single values."""
        return max((vectors + values) / self.loads, vectors * vector_bits / self.load_bits)


def _ports(
    fma: int, load: int, loads: int, latency: int, l1_kib: int, l2_kib: int, *, l2_rate: int = 24
) -> Ports:
    return Ports(
        fma_bits=fma,
        load_bits=load,
        loads=loads,
        latency=latency,
        l1_bytes=l1_kib * _KIB,
        l2_bytes=l2_kib * _KIB,
        l2_rate=l2_rate,
    )


_BY_NAME = {
    "znver1": _ports(256, 256, 2, 5, 32, 512),
    "znver2": _ports(512, 512, 2, 5, 32, 512),
    "znver3": _ports(512, 512, 3, 4, 32, 512),
    "znver4": _ports(512, 512, 3, 4, 32, 1024),
    "znver5": _ports(1024, 1024, 4, 4, 48, 1024, l2_rate=46),
    "haswell": _ports(512, 512, 2, 5, 32, 256),
    "broadwell": _ports(512, 512, 2, 5, 32, 256),
    "skylake": _ports(512, 512, 2, 4, 32, 256),
    "alderlake": _ports(512, 768, 3, 4, 48, 1280),
    "raptorlake": _ports(512, 768, 3, 4, 48, 2048),
    "meteorlake": _ports(512, 768, 3, 4, 48, 2048),
    "arrowlake": _ports(512, 768, 3, 4, 48, 3072),
    "skylake-avx512": _ports(1024, 1024, 2, 4, 32, 1024),
    "cascadelake": _ports(1024, 1024, 2, 4, 32, 1024),
    "cooperlake": _ports(1024, 1024, 2, 4, 32, 1024),
    "cannonlake": _ports(512, 1024, 2, 4, 32, 256),
    "icelake-client": _ports(512, 1024, 2, 4, 48, 512),
    "tigerlake": _ports(512, 1024, 2, 4, 48, 1280),
    "rocketlake": _ports(512, 1024, 2, 4, 48, 512),
    "icelake-server": _ports(1024, 1024, 2, 4, 48, 1280),
    "sapphirerapids": _ports(1024, 1024, 2, 4, 48, 2048),
    "emeraldrapids": _ports(1024, 1024, 2, 4, 48, 2048),
    "graniterapids": _ports(1024, 1024, 2, 4, 48, 2048),
    "cortex-a53": _ports(64, 64, 1, 8, 32, 512),
    "cortex-a55": _ports(128, 64, 1, 4, 32, 128),
    "cortex-a72": _ports(128, 128, 1, 7, 32, 1024),
    "cortex-a76": _ports(256, 256, 2, 4, 64, 256),
    "neoverse-n1": _ports(256, 256, 2, 4, 64, 1024),
    "neoverse-v1": _ports(512, 384, 3, 4, 64, 1024),
    "apple-m1": Ports(
        fma_bits=512, load_bits=384, loads=3, latency=4, fma_pipes=4,
        l1_bytes=128 * _KIB, l2_bytes=3072 * _KIB,
    ),
}  # fmt: skip
_BY_WIDTH = {
    512: _ports(1024, 1024, 2, 4, 32, 1024),
    256: _ports(512, 512, 2, 5, 32, 256),
    128: _ports(128, 128, 1, 5, 32, 256),
}


def is_wide(target: Target) -> bool:
    """Whether a core starts two multiply-adds of 512 bits in a cycle: it computes faster, relative
    to its third-level cache, than all others."""
    return target.vector_bits == 512 and ports(target).fmas(512) > 1


def ports(target: Target) -> Ports:
    """Return the model of a CPU target."""
    return _BY_NAME.get(target.arch) or _BY_WIDTH[target.vector_bits]
