"""Upsampling by the nearest pixel."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, size=(30, 25), mode="nearest")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 12, 14, 14)]
