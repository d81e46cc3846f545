"""A ConvNeXt block."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(32, 32, 7, padding=3, groups=32)
        self.norm = nn.LayerNorm(32, eps=1e-6)
        self.up = nn.Linear(32, 128)
        self.down = nn.Linear(128, 32)
        self.scale = nn.Parameter(torch.full((32,), 0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 32, 14, 14)]
