"""A diagonal state-space layer, scanned step by step."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.rand(24, 8))
        self.b, self.c = nn.Parameter(torch.randn(24, 8)), nn.Parameter(torch.randn(24, 8))
        self.skip = nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        decay, state, seen = torch.exp(-self.decay), torch.zeros(x.shape[0], 24, 8), []
        for step in x.unbind(dim=1):
            state = decay * state + self.b * step[..., None]
            seen.append((state * self.c).sum(dim=-1) + self.skip * step)
        return torch.stack(seen, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 16, 24)]
