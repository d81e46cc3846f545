"""A feed-forward block with SiLU as its gate."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(96, 256, bias=False)
        self.up = nn.Linear(96, 256, bias=False)
        self.down = nn.Linear(256, 96, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 32, 96)]
