"""LSTM in both directions over a batch."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(192, 96, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 32, 192)]
