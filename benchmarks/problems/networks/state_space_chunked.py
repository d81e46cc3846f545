"""A state-space scan in one product: a lower-triangular matrix of decays."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.rand(4))
        self.b, self.c = nn.Linear(32, 16), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        age = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        decay = torch.tril(torch.exp(-self.rate[:, None, None] * age.clamp(min=0)))
        scores = torch.einsum("bin,bjn->bij", self.c(x), self.b(x))
        return torch.einsum("bij,hij,bjhd->bihd", scores, decay, x.unflatten(-1, (4, 8))).flatten(2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 24, 32)]
