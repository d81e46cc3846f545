"""Mean over one axis."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
