"""The five largest values of each row."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.topk(x, 5, dim=1).values


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
