"""Product with both operands transposed."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.T @ b.T


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 192), torch.randn(96, 128)]
