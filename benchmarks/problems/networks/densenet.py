"""A dense block: each layer sees all before it."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x, self.conv(torch.relu(self.norm(x)))), dim=1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.layers = nn.Sequential(*(Layer(16 + 8 * i, 8) for i in range(4)))
        self.transition = nn.Sequential(
            nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 24, 1), nn.AvgPool2d(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.transition(self.layers(self.stem(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 3, 24, 24)]
