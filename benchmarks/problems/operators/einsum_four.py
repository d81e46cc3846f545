"""A contraction over two axes of a tensor of four."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bijl,lk->bijk", a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 12, 16, 32), torch.randn(32, 48)]
