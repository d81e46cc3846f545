"""Group norm of values that are all positive."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.sigmoid(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 32, 16, 16)]
