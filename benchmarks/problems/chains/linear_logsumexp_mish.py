"""Fully connected layer, logarithm of a sum of exponentials and Mish."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.logsumexp(self.layer(x) * 2.0, dim=1, keepdim=True)
        return x * functional.mish(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 256)]
