"""Fully connected layer, Swish, division, clamp and tanh."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.layer(x)) / 2.0
        return torch.tanh(x.clamp(-1.0, 1.0))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
