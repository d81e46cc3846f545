"""Attention whose cost grows with the length, not with its square."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        context = torch.einsum("bld,ble->bde", k, v)
        scale = 1 / (torch.einsum("bld,bd->bl", q, k.sum(dim=1)) + 1e-6)
        return torch.einsum("bld,bde,bl->ble", q, context, scale)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 64, 64)]
