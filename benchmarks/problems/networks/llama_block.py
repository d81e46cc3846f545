"""RMS norms, rotary positions, shared keys, SwiGLU."""

import torch
from torch import nn
from torch.nn import functional


def rotated(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(64, 64, bias=False), nn.Linear(64, 32, bias=False)
        self.out = nn.Linear(64, 64, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(64), nn.RMSNorm(64)
        self.gate, self.up = nn.Linear(64, 160, bias=False), nn.Linear(64, 160, bias=False)
        self.down = nn.Linear(160, 64, bias=False)
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, 16, 2) / 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q = rotated(self.q(y).unflatten(-1, (4, 16)).transpose(1, 2), self.frequencies)
        k, v = self.kv(y).unflatten(-1, (2, 1, 16)).permute(2, 0, 3, 1, 4)
        k, v = rotated(k, self.frequencies).expand_as(q), v.expand_as(q)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 64)]
