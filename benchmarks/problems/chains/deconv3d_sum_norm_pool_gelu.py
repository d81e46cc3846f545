"""Transposed 3D convolution, sum, layer norm, pooling and GELU."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(4, 8, 3, stride=2, padding=1, output_padding=1)
        self.shift = nn.Parameter(torch.tensor(0.7))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x) + self.shift)
        return functional.gelu(functional.avg_pool3d(x, 2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 4, 4, 8, 8)]
