"""Instance norms, reflected padding and a residual."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv1, self.conv2 = nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3)
        self.norm1, self.norm2 = (
            nn.InstanceNorm2d(16, affine=True),
            nn.InstanceNorm2d(16, affine=True),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(self.pad(x))))
        return x + self.norm2(self.conv2(self.pad(y)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 16, 24, 24)]
