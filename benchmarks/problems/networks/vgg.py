"""A small VGG."""

import torch
from torch import nn


def stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(stage(3, 16), stage(16, 32), stage(32, 64))
        self.head = nn.Sequential(nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 3, 32, 32)]
