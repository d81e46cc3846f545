"""Depthwise and pointwise convolution with norms and ReLU6."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(24, 24, 3, stride=2, padding=1, groups=24, bias=False)
        self.norm1 = nn.BatchNorm2d(24)
        self.pointwise = nn.Conv2d(24, 48, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu6(self.norm1(self.depthwise(x)))
        return functional.relu6(self.norm2(self.pointwise(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 28, 28)]
