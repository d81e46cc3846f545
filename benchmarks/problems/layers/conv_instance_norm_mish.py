"""Convolution, instance norm and Mish."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Conv2d(3, 32, 3), nn.InstanceNorm2d(32), nn.Mish())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 3, 64, 64)]
