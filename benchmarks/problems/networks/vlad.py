"""Soft assignment of local features to clusters, and their residuals."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.assign, self.centres = nn.Linear(32, 6), nn.Parameter(torch.randn(6, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.assign(x), dim=-1)
        residuals = weights.transpose(1, 2) @ x - weights.sum(dim=1)[..., None] * self.centres
        return functional.normalize(functional.normalize(residuals, dim=2).flatten(1), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 40, 32)]
