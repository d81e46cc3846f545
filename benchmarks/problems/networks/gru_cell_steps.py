"""A GRU cell called step by step."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(16, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 24)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return state


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 8, 16)]
