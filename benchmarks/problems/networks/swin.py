"""Attention in windows, the second time in shifted ones."""

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).reshape(batch, length, width))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Attention(32, 4, False), Attention(32, 4, False)

    def windows(self, x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        batch, height, width, channels = x.shape
        y = x.view(batch, height // 4, 4, width // 4, 4, channels).transpose(2, 3)
        y = layer(y.reshape(-1, 16, channels))
        y = y.view(batch, height // 4, width // 4, 4, 4, channels).transpose(2, 3)
        return x + y.reshape(x.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.windows(x, self.first)
        y = self.windows(torch.roll(x, (-2, -2), (1, 2)), self.second)
        return torch.roll(y, (2, 2), (1, 2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 16, 16, 32)]
