"""Fully connected layer, group norm and hard tanh."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)
        self.norm = nn.GroupNorm(6, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.hardtanh(self.norm(self.layer(x)), -2.0, 2.0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
