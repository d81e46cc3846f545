"""Hinge loss of scores and signs."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        return torch.clamp(1 - x * signs, min=0).mean()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(256), torch.randint(0, 2, (256,)).float() * 2 - 1]
