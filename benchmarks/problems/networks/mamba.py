"""A selective state-space block: steps depend on the input."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(24, 96)
        self.conv = nn.Conv1d(48, 48, 4, padding=3, groups=48)
        self.select = nn.Linear(48, 48 + 16)
        self.log_decay = nn.Parameter(torch.rand(48, 8))
        self.out = nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        y, gate = self.project(x).chunk(2, dim=-1)
        y = functional.silu(self.conv(y.transpose(1, 2))[..., :length].transpose(1, 2))
        step, b, c = self.select(y).split((48, 8, 8), dim=-1)
        step = functional.softplus(step)
        decay = torch.exp(-step[..., None] * torch.exp(self.log_decay))
        driven = (step * y)[..., None] * b[:, :, None, :]
        state, seen = torch.zeros_like(driven[:, 0]), []
        for i in range(length):
            state = decay[:, i] * state + driven[:, i]
            seen.append((state * c[:, i, None, :]).sum(dim=-1))
        return self.out(torch.stack(seen, dim=1) * functional.silu(gate))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(2, 12, 24)]
