"""Convolution, subtraction, hard Swish, pooling and Mish."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.hardswish(self.conv(x) - 0.5)
        return functional.mish(functional.max_pool2d(x, 2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 8, 24, 24)]
