"""Fully connected layer with a residual."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y * 0.5 + y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
