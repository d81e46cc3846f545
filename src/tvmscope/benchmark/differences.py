"""Measures how two arrays differ, piece by piece: files larger than memory can be compared.

What is no number means something too: NaN stands for NaN and an infinity for the same infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PIECE = 1 << 22
"""Elements that are converted to float64 at a time: some 100 MB with all that is computed."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An array `a` beside a reference `b` of the same shape; numbers over what is finite in `b`."""

    max_abs: float
    rms: float
    scale: float
    """The largest finite magnitude in `b`."""
    cosine: float | None
    """None where nothing is finite."""
    finite: int
    """How many elements of `b` are finite."""
    odd_result: int
    """Elements that are not finite in `a` only."""
    odd_reference: int
    """Elements that are not finite in `b`, and not the same in `a`."""

    @property
    def error(self) -> float:
        """max|a-b| / max|b|."""
        return self.max_abs / self.scale if self.scale else float(self.max_abs > 0.0)


def difference(a: Array, b: Array) -> Difference:
    """Compare two floating-point arrays."""
    scale = max((_top(y) for _, y in _pieces(a, b)), default=0.0)
    own = max((_top(x) for x, _ in _pieces(a, b)), default=0.0)
    top = squares = dot = aa = bb = 0.0
    finite = odd_result = odd_reference = 0
    for x, y in _pieces(a, b):
        good = np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        odd_reference += int(np.count_nonzero(~good & ~same))
        bad = good & ~np.isfinite(x)
        odd_result += int(np.count_nonzero(bad))
        finite += int(np.count_nonzero(good))
        u, v = x[good & ~bad], y[good & ~bad]
        gap = np.abs(u - v)
        top = max(top, float(gap.max(initial=0.0)))
        squares += float(np.square(gap / (scale or 1.0)).sum())
        u, v = u / (own or 1.0), v / (scale or 1.0)  # so that no square overflows
        dot, aa, bb = dot + float(u @ v), aa + float(u @ u), bb + float(v @ v)
    return Difference(
        max_abs=top,
        rms=(scale or 1.0) * sqrt(squares / finite) if finite else 0.0,
        scale=scale,
        cosine=_cosine(dot, aa, bb) if finite else None,
        finite=finite,
        odd_result=odd_result,
        odd_reference=odd_reference,
    )


def differing(a: Array, b: Array) -> Array:
    """Which elements of two integer arrays differ."""
    return np.asarray(a != b)


def _cosine(dot: float, aa: float, bb: float) -> float:
    """0 for a zero vector."""
    return float(np.clip(dot / sqrt(aa * bb), -1.0, 1.0)) if aa and bb else 0.0


def _top(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    x, y = a.reshape(-1), b.reshape(-1)
    for start in range(0, y.size, PIECE):
        part = slice(start, start + PIECE)
        yield x[part].astype(np.float64), y[part].astype(np.float64)
