"""A diagonal matrix times a matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.diag(d) @ x


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128), torch.randn(128, 160)]
