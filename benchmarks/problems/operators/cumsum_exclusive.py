"""Cumulative sum of what lies before each element."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), dim=1).cumsum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
