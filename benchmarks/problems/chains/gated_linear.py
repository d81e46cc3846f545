"""A gated linear unit."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(96, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.layer(x).chunk(2, dim=-1)
        return value * torch.sigmoid(gate)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 32, 96)]
