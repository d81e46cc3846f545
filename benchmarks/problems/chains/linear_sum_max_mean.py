"""Fully connected layer and reductions one after the other."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(self.layer(x))
        return x.amax(dim=1) - x.mean(dim=1) + x.sum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
