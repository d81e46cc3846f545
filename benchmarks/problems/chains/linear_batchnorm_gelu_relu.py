"""Fully connected layer, batch norm, GELU and ReLU."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)
        self.norm = nn.BatchNorm1d(192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(functional.gelu(self.norm(self.layer(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
