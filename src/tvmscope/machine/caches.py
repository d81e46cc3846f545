"""The data caches of this CPU: size, ways, sets and line of each level, as the system reports
them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd
from pathlib import Path

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level; `ways` and `sets` are None if the system does not report it."""

    level: int
    size_bytes: int
    line_bytes: int = 64
    ways: int | None = None
    sets: int | None = None

    @property
    def name(self) -> str:
        return f"L{self.level}"

    @property
    def places(self) -> int:
        """The number of lines in one set."""
        return self.ways or 8

    @property
    def all_sets(self) -> int:
        return self.sets or max(1, self.size_bytes // (self.line_bytes * self.places))

    def sets_used(self, stride_bytes: int) -> int:
        """Return how many different sets a traversal with this stride (whole lines) uses."""
        return self.all_sets // gcd(self.all_sets, max(1, abs(stride_bytes) // self.line_bytes))


USUAL = (
    Cache(level=1, size_bytes=32 << 10, ways=8, sets=64),
    Cache(level=2, size_bytes=1 << 20, ways=16, sets=1024),
)
"""The assumption for a system that reports nothing."""


def data_caches() -> tuple[Cache, ...]:
    """Return the caches, first level first; the usual ones if the system reports nothing."""
    return read(_FOLDER) or USUAL


@cache
def read(folder: Path) -> tuple[Cache, ...]:
    """Read a folder of Linux's form; instruction caches and unreadable ones are skipped."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            size = int(text[:-1]) * _UNITS[text[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue
        found[level] = Cache(
            level=level,
            size_bytes=size,
            line_bytes=_number(index / "coherency_line_size") or 64,
            ways=_number(index / "ways_of_associativity"),
            sets=_number(index / "number_of_sets"),
        )
    return tuple(found[level] for level in sorted(found))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text()) or None
    except (OSError, ValueError):
        return None
