"""Lower triangle."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(x, diagonal=-2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
