"""Rotary position embedding."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        exponents = torch.arange(0, 16, 2).float() / 16
        self.register_buffer("frequencies", 10000.0**-exponents)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[2]).float(), self.frequencies)
        angles = torch.cat((angles, angles), dim=-1)
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return x * angles.cos() + turned * angles.sin()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 4, 32, 16)]
