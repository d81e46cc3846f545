"""SiLU, also called Swish."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(128, 384)]
