"""Squeeze and excitation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(48, 12, 1)
        self.expand = nn.Conv2d(12, 48, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.mean(dim=(2, 3), keepdim=True)
        scale = torch.sigmoid(self.expand(torch.relu(self.squeeze(scale))))
        return x * scale


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 48, 16, 16)]
