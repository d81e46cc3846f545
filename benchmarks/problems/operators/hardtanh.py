"""Hard tanh."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.hardtanh(x, -0.8, 0.9)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
