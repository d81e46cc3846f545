"""Measures how two arrays differ, piece by piece: files larger than memory can be compared.

Non-finite values are compared, too: NaN equals NaN, and an infinity the same infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PIECE = 1 << 20
"""Elements that are converted to float64 at a time: some 30 MB with all that is computed."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An array `a` beside a reference `b` of the same shape; numbers over what is finite in `b`."""

    max_abs: float
    rms: float
    scale: float
    """The largest finite magnitude in `b`."""
    cosine: float | None
    """None if nothing is finite."""
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
    top = squares = dot = aa = bb = 0.0
    finite = odd_result = odd_reference = 0
    for x, y in _pieces(a, b):
        x, y = x.astype(np.float64), y.astype(np.float64)
        good, fine = np.isfinite(y), np.isfinite(x)
        finite += int(np.count_nonzero(good))
        if not (good.all() and fine.all()):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            odd_reference += int(np.count_nonzero(~good & ~same))
            odd_result += int(np.count_nonzero(good & ~fine))
            x, y = x[good & fine], y[good & fine]
        with np.errstate(over="ignore", invalid="ignore"):  # a result may be anything
            x, y = x / (scale or 1.0), y / (scale or 1.0)
            dot, aa, bb = dot + float(x @ y), aa + float(x @ x), bb + float(y @ y)
            gap = np.subtract(x, y, out=x)
            squares += float(gap @ gap)
        top = max(top, float(np.abs(gap, out=gap).max(initial=0.0)))
    return Difference(
        max_abs=(scale or 1.0) * top,
        rms=(scale or 1.0) * sqrt(squares / finite) if finite else 0.0,
        scale=scale,
        cosine=_cosine(dot, aa, bb) if finite else None,
        finite=finite,
        odd_result=odd_result,
        odd_reference=odd_reference,
    )


def _cosine(dot: float, aa: float, bb: float) -> float:
    """0 for a zero vector, and for one so long that its square overflows."""
    return float(np.clip(dot / sqrt(aa * bb), -1.0, 1.0)) if 0 < aa * bb < inf else 0.0


def _top(values: Array) -> float:
    largest, least = values.max(), values.min()  # NaN where there is one: then look closer
    if np.isfinite(largest) and np.isfinite(least):
        return float(max(abs(float(largest)), abs(float(least))))
    return float(np.abs(values[np.isfinite(values)].astype(np.float64)).max(initial=0.0))


def _pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    x, y = a.reshape(-1), b.reshape(-1)
    for start in range(0, y.size, PIECE):
        yield x[start : start + PIECE], y[start : start + PIECE]
