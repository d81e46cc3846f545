"""Norms of groups and instances, each with weights and as groups of one image's channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _held(
    data: Tensor, weight: Tensor | None, bias: Tensor | None, channels: int
) -> tuple[Tensor, Tensor]:
    gain = data.new_ones(channels) if weight is None else weight
    return gain, data.new_zeros(channels) if bias is None else bias


def group_norm(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    epsilon: float,
) -> Any:
    """Give the norm the weights that TVM's converter expects."""
    if weight is not None and bias is not None:
        return NotImplemented
    held = _held(data, weight, bias, channels)
    return aten.native_group_norm.default(data, *held, batch, channels, pixels, groups, epsilon)


def instance_norm(
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    epsilon: float,
    cudnn_enabled: bool,
) -> Any:
    """Rewrite the norm of each image's channels as one of groups of a single channel.

    PyTorch's own decomposition merges the images into the channels.
    """
    held = _held(data, weight, bias, data.shape[1])
    if not use_input_stats:
        known = (*held, mean, variance, momentum, epsilon)
        return aten._native_batch_norm_legit_no_training.default(data, *known)[0]
    if mean is not None or variance is not None:
        return NotImplemented  # running statistics are written
    return aten.group_norm.default(data, data.shape[1], *held, epsilon)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.instance_norm.default: instance_norm,
    aten.native_group_norm.default: group_norm,
}
