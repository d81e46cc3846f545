"""Elements by index along an axis."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 1, indices)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 100), torch.randint(0, 100, (64, 12))]
