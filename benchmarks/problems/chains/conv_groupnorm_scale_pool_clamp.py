"""Convolution, group norm, scale, pooling and clamp."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 24, 3)
        self.norm = nn.GroupNorm(4, 24)
        self.scale = nn.Parameter(torch.ones(24, 1, 1) * 1.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)) * self.scale
        return functional.max_pool2d(x, 4).clamp(0.0, 1.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 8, 24, 24)]
