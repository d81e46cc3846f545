"""Rolled along two axes."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x, shifts=(3, -5), dims=(0, 1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
