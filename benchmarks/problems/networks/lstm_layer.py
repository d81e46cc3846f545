"""An LSTM of one layer and a head."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(24, 32, batch_first=True)
        self.head = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.layer(x)
        return self.head(states[:, -1])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 24)]
