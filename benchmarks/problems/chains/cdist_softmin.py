"""Distances of all pairs of rows, as weights."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        distances = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1).sqrt()
        return torch.softmax(-distances, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(24, 32), torch.randn(40, 32)]
