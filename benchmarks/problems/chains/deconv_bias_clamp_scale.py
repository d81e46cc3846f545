"""Transposed convolution, bias, clamp and scale."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(16, 12, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(12, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (self.conv(x) + self.bias).clamp(0.0, 1.0)
        return (x * 2.0).clamp(0.0, 1.0) / 2.0


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 12, 12)]
