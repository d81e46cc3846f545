"""Fully connected layer, ReLU and division."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) / 2.5


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
