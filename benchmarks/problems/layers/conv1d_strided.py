"""1D convolution of few channels, with a stride and dilation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 64, 3, stride=2, dilation=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 3, 4096)]
