"""Rows of a table by index."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200, 64)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        return self.table(indices)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 200, (8, 32))]
