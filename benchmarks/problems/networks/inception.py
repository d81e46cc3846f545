"""An inception module of four branches."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch1 = nn.Conv2d(32, 16, 1)
        self.branch3 = nn.Sequential(nn.Conv2d(32, 12, 1), nn.Conv2d(12, 24, 3, padding=1))
        self.branch5 = nn.Sequential(nn.Conv2d(32, 8, 1), nn.Conv2d(8, 16, 5, padding=2))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), nn.Conv2d(32, 8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((self.branch1(x), self.branch3(x), self.branch5(x), self.pooled(x)), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 32, 16, 16)]
