"""An encoder with mean and variance, and a decoder; several outputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(96, 48)
        self.mean, self.log_variance = nn.Linear(48, 8), nn.Linear(48, 8)
        self.decode = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 96), nn.Sigmoid())

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> dict[str, torch.Tensor]:
        inner = torch.relu(self.encode(x))
        mean, log_variance = self.mean(inner), self.log_variance(inner)
        sample = mean + noise * torch.exp(log_variance / 2)
        return {"image": self.decode(sample), "mean": mean, "log_variance": log_variance}


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 96), torch.randn(8, 8)]
