"""An MBConv block with squeeze and excitation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(64, 64, 5, padding=2, groups=64, bias=False), nn.BatchNorm2d(64), nn.SiLU()
        )
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(64, 4, 1),
            nn.SiLU(),
            nn.Conv2d(4, 64, 1),
            nn.Sigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(64, 16, 1, bias=False), nn.BatchNorm2d(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.excite(y))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 20, 20)]
