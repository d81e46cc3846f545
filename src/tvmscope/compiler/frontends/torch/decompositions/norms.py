"""Normalisation: PyTorch's own decomposition merges the batch into the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


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
    """Rewrite the norm of each image's channels as one of groups of a single channel."""
    channels = data.shape[1]
    gain = data.new_ones(channels) if weight is None else weight
    offset = data.new_zeros(channels) if bias is None else bias
    if not use_input_stats:
        held = (gain, offset, mean, variance, momentum, epsilon)
        return aten._native_batch_norm_legit_no_training.default(data, *held)[0]
    if mean is not None or variance is not None:
        return NotImplemented  # running statistics are written
    return aten.group_norm.default(data, channels, gain, offset, epsilon)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten.instance_norm.default: instance_norm}
