"""Triplet margin loss."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(
        self, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
    ) -> torch.Tensor:
        return functional.triplet_margin_loss(anchor, positive, negative)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(32, 64), torch.randn(32, 64), torch.randn(32, 64)]
