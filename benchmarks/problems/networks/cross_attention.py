"""A decoder's block that looks at an encoder's output."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(64, 64), nn.Linear(64, 128), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (4, 16)).transpose(1, 2)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        k, v = self.kv(memory).chunk(2, dim=-1)
        q = self.heads(self.q(self.norm(x)))
        weights = torch.softmax(q @ self.heads(k).transpose(-1, -2) / 4.0, dim=-1)
        return x + self.out((weights @ self.heads(v)).transpose(1, 2).flatten(2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 64), torch.randn(2, 40, 64)]
