"""Interpolation that TVM lacks or rounds differently: separable, one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _sizes(data: Tensor, size: Any, factors: Any, axes: int) -> list[tuple[int, float]]:
    """Return for each axis its new length, and the distance in the data per step of the result."""
    found = []
    for n, old in enumerate(data.shape[-axes:]):
        if factors is not None:
            found.append((int(old * factors[n]), 1.0 / factors[n]))
        else:
            found.append((size[n], old / size[n]))
    return found


def _nearest(axes: int, offset: float) -> Callable[..., Any]:
    def decompose(data: Tensor, size: Any, factors: Any = None) -> Any:
        wanted = _sizes(data, size, factors, axes)
        olds = data.shape[-axes:]
        whole = all(new % old == 0 for (new, _), old in zip(wanted, olds, strict=True))
        if axes == 2 and not offset and whole:
            return NotImplemented
        for axis, (new, step) in enumerate(wanted, start=data.ndim - axes):
            line = torch.arange(new, device=data.device)
            places = ((line + offset).to(torch.float32) * step).floor().to(torch.int64)
            data = data.index_select(axis, places.clamp(0, data.shape[axis] - 1))
        return data

    return decompose


def _coordinates(data: Tensor, axis: int, new: int, step: float, aligned: bool) -> Tensor:
    """Return the coordinates in the data of the result's elements."""
    line = torch.arange(new, device=data.device).to(torch.float32)
    if aligned:
        return line * ((data.shape[axis] - 1) / max(new - 1, 1))
    return ((line + 0.5) * step - 0.5).clamp(min=0.0)


def _linear(axes: int) -> Callable[..., Any]:
    def decompose(data: Tensor, size: Any, align_corners: bool, factors: Any = None) -> Tensor:
        for axis, (new, step) in enumerate(
            _sizes(data, size, factors, axes), start=data.ndim - axes
        ):
            place = _coordinates(data, axis, new, step, align_corners)
            low = place.floor().to(torch.int64).clamp(0, data.shape[axis] - 1)
            high = torch.clamp(low + 1, 0, data.shape[axis] - 1)
            share = (place - low).clamp(0.0, 1.0).to(data.dtype)
            share = share.view(-1, *([1] * (data.ndim - axis - 1)))
            first, second = (data.index_select(axis, where) for where in (low, high))
            data = first + (second - first) * share
        return data

    return decompose


def _triangle(x: Tensor) -> Tensor:
    return (1.0 - x.abs()).clamp(min=0.0)


def _cubic(x: Tensor) -> Tensor:
    """Evaluate the filter with a = -0.5, which PyTorch uses for antialiasing."""
    a, near = -0.5, x.abs()
    inner = ((a + 2) * near - (a + 3)) * near * near + 1
    outer = (((near - 5) * near + 8) * near - 4) * a
    return torch.where(near < 1, inner, torch.where(near < 2, outer, torch.zeros_like(near)))


def _smoothed(kernel: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def decompose(
        data: Tensor,
        size: Sequence[int],
        align_corners: bool,
        scale_high: float | None = None,
        scale_wide: float | None = None,
    ) -> Tensor:
        """Multiply with a matrix of weights for each axis, whose rows sum to 1."""
        factors = (scale_high, scale_wide)
        for axis, new, factor in zip((2, 3), size, factors, strict=True):
            old = data.shape[axis]
            step = 1.0 / factor if factor else old / new
            if align_corners:
                step = (old - 1) / max(new - 1, 1)
            center = (torch.arange(new).to(torch.float32) + 0.5) * step
            apart = torch.arange(old).to(torch.float32) - center[:, None] + 0.5
            weights = kernel(apart / max(step, 1.0))
            weights = (weights / weights.sum(1, keepdim=True)).to(data.dtype)
            data = torch.matmul(data.movedim(axis, -1), weights.t()).movedim(-1, axis)
        return data

    return decompose


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.upsample_nearest1d.vec: _nearest(1, 0.0),
    aten.upsample_nearest2d.vec: _nearest(2, 0.0),
    aten.upsample_nearest3d.vec: _nearest(3, 0.0),
    aten._upsample_nearest_exact1d.vec: _nearest(1, 0.5),
    aten._upsample_nearest_exact2d.vec: _nearest(2, 0.5),
    aten._upsample_nearest_exact3d.vec: _nearest(3, 0.5),
    aten.upsample_linear1d.vec: _linear(1),
    aten.upsample_trilinear3d.vec: _linear(3),
    aten._upsample_bilinear2d_aa.default: _smoothed(_triangle),
    aten._upsample_bicubic2d_aa.default: _smoothed(_cubic),
}
