"""An LSTM over 512 steps: unrolled it would be thousands of operators."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(16, 24, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 512, 16)]
