"""Cumulative operators: log2(n) steps, each of which combines elements twice as far apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def logcumsumexp(data: Tensor, dim: int) -> Tensor:
    """Stay exact where sums of exponentials over the whole axis would overflow or vanish."""
    if data.ndim == 0:
        return data.clone()
    size, far, found = data.shape[dim], 1, data
    while far < size:
        here, before = found.narrow(dim, far, size - far), found.narrow(dim, 0, size - far)
        found = torch.cat([found.narrow(dim, 0, far), torch.logaddexp(here, before)], dim)
        far *= 2
    return found


def _extreme(better: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, int], Any]:
    def scan(data: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if data.ndim == 0:
            return data.clone(), torch.zeros_like(data, dtype=torch.int64)
        size, far, axis = data.shape[dim], 1, dim % data.ndim
        line = torch.arange(size).view(-1, *([1] * (data.ndim - axis - 1)))
        values, places = data, line.expand(data.shape)
        while far < size:
            here, before = (
                [x.narrow(dim, start, size - far) for x in (values, places)] for start in (far, 0)
            )
            keep = better(here[0], before[0])  # of equal ones, keep the later
            new = [torch.where(keep, a, b) for a, b in zip(here, before, strict=True)]
            values, places = (
                torch.cat([x.narrow(dim, 0, far), y], dim)
                for x, y in zip((values, places), new, strict=True)
            )
            far *= 2
        return values, places

    return scan


def _widened(operator: Any) -> Callable[..., Any]:
    """Sum integers and booleans as int64."""

    def decompose(data: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        wanted = dtype or (data.dtype if data.is_floating_point() else torch.int64)
        if data.dtype == wanted:
            return NotImplemented
        return operator(data.to(wanted), dim)

    return decompose


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.logcumsumexp.default: logcumsumexp,
    aten.cummax.default: _extreme(torch.ge),
    aten.cummin.default: _extreme(torch.le),
    aten.cumsum.default: _widened(aten.cumsum.default),
    aten.cumprod.default: _widened(aten.cumprod.default),
}
