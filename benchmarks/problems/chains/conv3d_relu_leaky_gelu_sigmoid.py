"""3D convolution and four activations."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 16, 3)
        self.bias = nn.Parameter(torch.randn(16, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.leaky_relu(torch.relu(self.conv(x)), 0.01)
        return torch.sigmoid(functional.gelu(x)) + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 3, 10, 14, 14)]
