"""A perceptron of three hidden layers."""

import itertools

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (128, 256, 128, 64)
        layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
        self.body = nn.Sequential(*layers, nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 128)]
