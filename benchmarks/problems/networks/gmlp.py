"""A gated MLP with a product over positions."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(48), nn.LayerNorm(64)
        self.up, self.down = nn.Linear(48, 128), nn.Linear(64, 48)
        self.positions = nn.Conv1d(32, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = functional.gelu(self.up(self.norm(x))).chunk(2, dim=-1)
        return x + self.down(value * self.positions(self.inner(gate)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 32, 48)]
