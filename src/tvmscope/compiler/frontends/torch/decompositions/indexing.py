"""Indexing by tensors: one flat index, and one gather or scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -float("inf"), "amin": float("inf")}


def _flat(indices: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Return flat indices over the flattened axes; negative indices count from the end."""
    total: Tensor | None = None
    for index, size in zip(torch.broadcast_tensors(*indices), sizes, strict=True):
        place = torch.where(index < 0, index + size, index)
        total = place if total is None else total * size + place
    assert total is not None
    return total


def index(data: Tensor, indices: Sequence[Tensor | None]) -> Any:
    """Rewrite `data[i, :, j]`: move the indexed axes first, flatten them, and select once."""
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if not given or any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        return NotImplemented
    axes = [axis for axis, _ in given]
    chosen = [i.to(torch.int64) for _, i in given]
    sizes = [data.shape[axis] for axis in axes]
    rest = [axis for axis in range(data.ndim) if axis not in axes]
    places = _flat(chosen, sizes)
    if axes == list(range(axes[0], axes[0] + len(axes))):  # adjacent axes: the result stays there
        before, behind = data.shape[: axes[0]], data.shape[axes[-1] + 1 :]
        joined = data.reshape(*before, prod(sizes), *behind)
        taken = joined.index_select(axes[0], places.reshape(-1))
        return taken.reshape(*before, *places.shape, *behind)
    front = data.permute(*axes, *rest).reshape(prod(sizes), *(data.shape[a] for a in rest))
    taken = front.index_select(0, places.reshape(-1))
    return taken.reshape(*places.shape, *(data.shape[a] for a in rest))


def select(data: Tensor, dim: int, number: int) -> Any:
    """Make a negative index positive: TVM does not support it."""
    if not isinstance(number, int) or number >= 0:
        return NotImplemented
    return aten.select.int(data, dim, number + data.shape[dim])


def scatter_reduce(
    data: Tensor,
    dim: int,
    places: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    """Compute means by sums and counts; to exclude the old values, make them neutral first."""
    if reduce != "mean" and include_self:
        return NotImplemented
    source = source[tuple(slice(0, size) for size in places.shape)]
    neutral = _NEUTRAL[reduce]
    if not data.is_floating_point() and reduce in ("amax", "amin"):
        limits = torch.iinfo(data.dtype)
        neutral = limits.min if reduce == "amax" else limits.max
    start = data if include_self else aten.scatter.value(data, dim, places, neutral)
    if reduce != "mean":
        return aten.scatter_reduce.two(start, dim, places, source, reduce)
    total = torch.scatter_add(start, dim, places, source)
    ones = torch.ones_like(data)
    counts = ones if include_self else aten.scatter.value(ones, dim, places, 0.0)
    counts = torch.scatter_add(counts, dim, places, torch.ones_like(source))
    counts = counts.clamp(min=1)
    return total / counts if data.is_floating_point() else total // counts


def as_strided(
    data: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Rewrite a view of contiguous data as a selection."""
    if not data.is_contiguous():
        return NotImplemented
    places = torch.full((), storage_offset or 0, dtype=torch.int64)
    for length, step in zip(size, stride, strict=True):
        places = places[..., None] + torch.arange(length) * step
    return data.reshape(-1).index_select(0, places.reshape(-1)).reshape(tuple(size))


def roll(data: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Swap the two parts of each axis: slices and a concatenation move whole blocks and are fused
    with what follows, which a gather is not."""
    if not dims:
        return roll(data.reshape(-1), shifts, (0,)).reshape(data.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = data.shape[dim]
        if not isinstance(size, int):
            return NotImplemented
        if size and shift % size:
            first = size - shift % size
            data = torch.cat(
                [data.narrow(dim, first, size - first), data.narrow(dim, 0, first)], dim
            )
    return data.clone()


def searchsorted(
    sorted_sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Any:
    """Count the elements that are smaller."""
    if sorter is not None:
        return NotImplemented
    line = sorted_sequence if sorted_sequence.ndim == 1 else sorted_sequence.unsqueeze(-2)
    at_right = right or side == "right"
    smaller = line <= values[..., None] if at_right else line < values[..., None]
    return smaller.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def kthvalue(data: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Take the values from the sorted elements."""
    if data.ndim == 0:
        return data.clone(), torch.zeros_like(data, dtype=torch.int64)
    values, places = torch.sort(data, dim)
    found = [x.narrow(dim, k - 1, 1) for x in (values, places)]
    return tuple(x if keepdim else x.squeeze(dim) for x in found)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: index,
    aten.select.int: select,
    aten.scatter_reduce.two: scatter_reduce,
    aten.as_strided.default: as_strided,
    aten.roll.default: roll,
    aten.searchsorted.Tensor: searchsorted,
    aten.kthvalue.default: kthvalue,
}
