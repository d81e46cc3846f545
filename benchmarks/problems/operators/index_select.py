"""Rows by index."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, indices)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(100, 48), torch.randint(0, 100, (40,))]
