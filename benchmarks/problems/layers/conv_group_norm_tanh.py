"""Convolution, group norm, tanh and hard swish."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            nn.Conv2d(16, 64, 3), nn.GroupNorm(8, 64), nn.Tanh(), nn.Hardswish()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 16, 64, 64)]
