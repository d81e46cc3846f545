"""Softmax, dropout (idle in inference) and a product."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.dropout(torch.softmax(x, dim=-1)) @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(4, 48, 48), torch.randn(4, 48, 32)]
