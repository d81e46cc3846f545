"""GRU of two layers over a batch."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(128, 256, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(10, 64, 128)]
