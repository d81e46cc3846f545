"""Transposed 3D convolution, batch norm and softplus."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(
            nn.ConvTranspose3d(16, 32, 3, stride=2), nn.BatchNorm3d(32), nn.Softplus()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 8, 16, 16)]
