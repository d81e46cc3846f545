"""Scaled dot-product attention."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 4, 48, 32), torch.randn(2, 4, 48, 32), torch.randn(2, 4, 48, 32)]
