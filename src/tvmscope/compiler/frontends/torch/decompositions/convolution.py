"""Transposed convolutions over volumes, as ordinary ones.

With stride s, the outputs at one of the positions within a step use every s-th weight only: one
convolution computes them for all positions, whose results are then put side by side. If the weights
are dilated, a grid with gaps is convolved instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
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
    """Convert a transposed convolution of three axes to an ordinary one.

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
    if all(d == 1 for d in dilation):
        return side_by_side(data, weight, bias, stride, padding, output_padding, groups)
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


def side_by_side(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Compute all positions within a step as outputs of one convolution, then put them in place."""
    axes, sizes = len(stride), data.shape[2:]
    inputs, outputs, *window = weight.shape
    taps = [-(-k // s) for k, s in zip(window, stride, strict=True)]
    whole = [
        (n - 1) * s - 2 * p + k + more
        for n, s, p, k, more in zip(sizes, stride, padding, window, output_padding, strict=True)
    ]
    steps = [(n - 1 + p) // s + 1 for n, p, s in zip(whole, padding, stride, strict=True)]
    parts = torch.constant_pad_nd(
        weight,
        [p for k, s, t in reversed([*zip(window, stride, taps, strict=True)])
         for p in (0, t * s - k)],
    )  # fmt: skip
    parts = parts.reshape(
        groups,
        inputs // groups,
        outputs,
        *(n for each in zip(taps, stride, strict=True) for n in each),
    )
    of_taps, of_places = [3 + 2 * a for a in range(axes)], [4 + 2 * a for a in range(axes)]
    turned = parts.flip(of_taps).permute(0, 2, *of_places, 1, *of_taps)
    places = prod(stride)
    added = None if bias is None else bias[:, None].expand(-1, places).reshape(-1)
    wide = torch.constant_pad_nd(
        data,
        [p for t, q, n in reversed([*zip(taps, steps, sizes, strict=True)])
         for p in (t - 1, q - n)],
    )  # fmt: skip
    small: Tensor = aten.convolution.default(
        wide, turned.reshape(groups * outputs * places, inputs // groups, *taps), added,
        [1] * axes, [0] * axes, [1] * axes, False, [0] * axes, groups,
    )  # fmt: skip
    placed = small.reshape(data.shape[0], groups * outputs, *stride, *steps)
    order = [n for a in range(axes) for n in (2 + axes + a, 2 + a)]
    joined = placed.permute(0, 1, *order).reshape(
        data.shape[0], groups * outputs, *(q * s for q, s in zip(steps, stride, strict=True))
    )
    for axis, (first, count) in enumerate(zip(padding, whole, strict=True), start=2):
        joined = joined.narrow(axis, first, count)
    return joined


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten.convolution.default: convolution}
