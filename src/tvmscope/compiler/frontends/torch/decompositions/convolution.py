"""Transposed convolutions over volumes, as convolutions over a grid with gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def spread(data: Tensor, strides: Sequence[int]) -> Tensor:
    """Insert `stride - 1` zeros between neighbours along each of the last axes."""
    lead, sizes = data.shape[: -len(strides)], data.shape[-len(strides) :]
    apart = data.reshape(*lead, *(part for size in sizes for part in (size, 1)))
    pads = [part for stride in reversed(strides) for part in (0, stride - 1, 0, 0)]
    wide = torch.constant_pad_nd(apart, pads)
    joined = wide.reshape(*lead, *(s * stride for s, stride in zip(sizes, strides, strict=True)))
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True), start=len(lead)):
        joined = joined.narrow(axis, 0, (size - 1) * stride + 1)
    return joined


def convolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Convert a transposed convolution of three axes to one with flipped weights on data with gaps.

    A bias of another type than float32 is added separately: TVM's convolution gives float32.
    """
    axes = weight.ndim - 2
    if bias is not None and data.dtype != torch.float32:
        how = (stride, padding, dilation, transposed, output_padding, groups)
        plain = aten.convolution.default(data, weight, None, *how)
        return plain + bias.reshape(-1, *([1] * axes))
    if not transposed or axes != 3:
        return NotImplemented
    if data.ndim == axes + 1:
        whole = convolution(
            data[None], weight, bias, stride, padding, dilation, True, output_padding, groups
        )
        return whole[0]
    wide = spread(data, stride)
    pads: list[int] = []
    for axis in reversed(range(axes)):
        before = dilation[axis] * (weight.shape[2 + axis] - 1) - padding[axis]
        pads += [before, before + output_padding[axis]]
    inputs, outputs, *window = weight.shape
    turned = weight.flip(list(range(2, weight.ndim)))
    turned = turned.reshape(groups, inputs // groups, outputs, *window).transpose(1, 2)
    return aten.convolution.default(
        torch.constant_pad_nd(wide, pads),
        turned.reshape(groups * outputs, inputs // groups, *window),
        bias,
        [1] * axes,
        [0] * axes,
        dilation,
        False,
        [0] * axes,
        groups,
    )


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten.convolution.default: convolution}
