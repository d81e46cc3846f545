"""A fire module."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(32, 8, 1)
        self.narrow = nn.Conv2d(8, 32, 1)
        self.wide = nn.Conv2d(8, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.squeeze(x))
        return torch.cat((torch.relu(self.narrow(y)), torch.relu(self.wide(y))), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 32, 24, 24)]
