"""Pooling and unfolding by windows: computes indices and gathers elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from tvmscope.compiler.frontends.torch.decompositions.convolution import spread

aten = torch.ops.aten


def _each(value: Any, count: int, default: Any = None) -> list[int]:
    """Return one number per axis."""
    chosen = default if value is None or (isinstance(value, list | tuple) and not value) else value
    numbers = [chosen] if isinstance(chosen, int) else list(chosen)
    return numbers * count if len(numbers) == 1 else numbers


def _select(data: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Gather windows along the last axes: outputs, then elements; indices are (out, window)."""
    first = data.ndim - len(places)
    for axis, table in enumerate(places, start=first):
        data = data.index_select(axis, table.reshape(-1))
    lead = data.shape[:first]
    split = data.reshape(*lead, *(size for table in places for size in table.shape))
    outs = [first + 2 * i for i in range(len(places))]
    order = [*range(first), *outs, *(axis + 1 for axis in outs)]
    return split.permute(order)


def _count(size: int, window: int, stride: int, pad: int, dilation: int, ceil: bool) -> int:
    """Return the number of windows, as PyTorch counts them."""
    reach = dilation * (window - 1) + 1
    spare = size + 2 * pad - reach
    count = (-(-spare // stride) if ceil else spare // stride) + 1
    if ceil and (count - 1) * stride >= size + pad:
        count -= 1  # a window must not begin in the padding at the end
    return count


def _sliding(
    data: Tensor,
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    fill: float,
) -> tuple[Tensor, list[Tensor]]:
    """Return the windows of padded data, and their indices in the data along each axis."""
    axes = len(window)
    sizes = data.shape[-axes:]
    tables: list[Tensor] = []
    pads: list[int] = []
    for n in range(axes):
        count = _count(sizes[n], window[n], stride[n], padding[n], dilation[n], ceil)
        last = (count - 1) * stride[n] + (window[n] - 1) * dilation[n]
        pads = [padding[n], max(last + 1 - sizes[n] - padding[n], 0), *pads]
        starts = torch.arange(count, device=data.device) * stride[n]
        tables.append(starts[:, None] + torch.arange(window[n], device=data.device) * dilation[n])
    padded = torch.constant_pad_nd(data, pads, fill) if any(pads) else data
    return _select(padded, tables), [t - p for t, p in zip(tables, padding, strict=True)]


def _largest(windows: Tensor, places: Sequence[Tensor], sizes: Sequence[int]) -> Any:
    """Return the maximum of each window, and its index in the flattened axes."""
    axes = len(places)
    flat = torch.zeros((), dtype=torch.int64)
    for n, table in enumerate(places):
        shape = [1] * (2 * axes)
        shape[n], shape[axes + n] = table.shape
        flat = flat * sizes[n] + table.reshape(shape)
    outs = [table.shape[0] for table in places]
    lead = windows.shape[: windows.ndim - 2 * axes]
    windows = windows.reshape(*lead, *outs, -1)
    values, chosen = windows.amax(-1), windows.argmax(-1)  # the second is often not used
    table = flat.reshape(*outs, -1).expand(*lead, *outs, -1)
    return values, table.gather(-1, chosen[..., None])[..., 0]


def _max_with_places(axes: int) -> Callable[..., Any]:
    def decompose(
        data: Tensor,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        sizes = _each(window, axes)
        low = -float("inf") if data.is_floating_point() else torch.iinfo(data.dtype).min
        windows, places = _sliding(
            data,
            sizes,
            _each(stride, axes, sizes),
            _each(padding, axes),
            _each(dilation, axes),
            ceil_mode,
            low,
        )
        return _largest(windows, places, data.shape[-axes:])

    return decompose


def _average(axes: int) -> Callable[..., Any]:
    def decompose(
        data: Tensor,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        """Handle only another divisor than the number of elements."""
        if divisor_override is None:
            return NotImplemented
        sizes = _each(window, axes)
        windows, _ = _sliding(
            data, sizes, _each(stride, axes, sizes), _each(padding, axes), [1] * axes, ceil_mode, 0
        )
        return windows.sum(list(range(windows.ndim - axes, windows.ndim))) / divisor_override

    return decompose


def _adaptive(axes: int) -> Callable[..., Any]:
    def decompose(data: Tensor, output_size: Any) -> Any:
        """Pool windows of several lengths: shorter ones repeat their last element."""
        tables = []
        for size, count in zip(data.shape[-axes:], _each(output_size, axes), strict=True):
            numbers = torch.arange(count, device=data.device)
            starts, ends = numbers * size // count, -(-(numbers + 1) * size // count)
            most = max(-(-(n + 1) * size // count) - n * size // count for n in range(count))
            line = torch.arange(most, device=data.device)
            tables.append(torch.minimum(starts[:, None] + line, ends[:, None] - 1))
        return _largest(_select(data, tables), tables, data.shape[-axes:])

    return decompose


def im2col(data: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Return windows as columns: channels and elements of windows, then windows."""
    if data.ndim == 3:
        whole: Tensor = im2col(data[None], kernel, dilation, padding, stride)
        return whole[0]
    sizes = _each(kernel, 2)
    windows, _ = _sliding(
        data, sizes, _each(stride, 2), _each(padding, 2), _each(dilation, 2), False, 0
    )
    batch, channels, high, wide = windows.shape[:4]
    return windows.permute(0, 1, 4, 5, 2, 3).reshape(batch, channels * prod(sizes), high * wide)


def col2im(
    data: Tensor, output_size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> Tensor:
    """Add columns into an image: each element of windows on a grid with gaps, shifted."""
    if data.ndim == 2:
        whole: Tensor = col2im(data[None], output_size, kernel, dilation, padding, stride)
        return whole[0]
    window, strides = _each(kernel, 2), _each(stride, 2)
    gaps, pads, size = _each(dilation, 2), _each(padding, 2), list(output_size)
    counts = [_count(size[n], window[n], strides[n], pads[n], gaps[n], False) for n in range(2)]
    batch, channels = data.shape[0], data.shape[1] // prod(window)
    parts = spread(data.reshape(batch, channels, *window, *counts), strides)
    total = None
    for row in range(window[0]):
        for column in range(window[1]):
            part = parts[:, :, row, column]
            around: list[int] = []
            for n, index in ((1, column), (0, row)):
                before = index * gaps[n] - pads[n]
                around += [before, size[n] - part.shape[2 + n] - before]
            placed = torch.constant_pad_nd(part, around)
            total = placed if total is None else total + placed
    assert total is not None
    return total


def unfold(data: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return windows along one axis, their elements last."""
    axis = dimension % data.ndim
    count = (data.shape[axis] - size) // step + 1
    starts = torch.arange(count, device=data.device) * step
    places = starts[:, None] + torch.arange(size, device=data.device)
    taken = data.index_select(axis, places.reshape(-1))
    apart: Tensor = taken.unflatten(axis, (count, size))
    return apart.movedim(axis + 1, -1)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.max_pool2d_with_indices.default: _max_with_places(2),
    aten.max_pool3d_with_indices.default: _max_with_places(3),
    aten.avg_pool2d.default: _average(2),
    aten.avg_pool3d.default: _average(3),
    aten.adaptive_max_pool2d.default: _adaptive(2),
    aten.adaptive_max_pool3d.default: _adaptive(3),
    aten.im2col.default: im2col,
    aten.col2im.default: col2im,
    aten.unfold.default: unfold,
}
