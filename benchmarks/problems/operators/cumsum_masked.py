"""Cumulative sum of the elements that a mask selects."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x * mask, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 256), torch.rand(64, 256) > 0.5]
