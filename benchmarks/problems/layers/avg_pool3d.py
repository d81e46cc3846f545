"""3D average pooling."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.AvgPool3d(3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 16, 32, 32)]
