"""Transposed 3D convolution, mean over depth, softmax, tanh and scale."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose3d(4, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x).mean(dim=2, keepdim=True)
        return torch.tanh(torch.softmax(x, dim=1)) * 2.0


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 4, 6, 8, 8)]
