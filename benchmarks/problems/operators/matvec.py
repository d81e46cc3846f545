"""Matrix times vector."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return a @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(512, 768), torch.randn(768)]
