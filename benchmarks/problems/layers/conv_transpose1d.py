"""Transposed 1D convolution."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ConvTranspose1d(64, 32, 5, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 64, 1024)]
