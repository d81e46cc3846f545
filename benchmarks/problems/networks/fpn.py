"""A feature pyramid: coarse maps are added to finer ones."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in ((3, 16), (16, 32), (32, 64))
        )
        self.lateral = nn.ModuleList(nn.Conv2d(c, 16, 1) for c in (16, 32, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = []
        for stage in self.stages:
            x = torch.relu(stage(x))
            maps.append(x)
        top = self.lateral[2](maps[2])
        for level in (1, 0):
            top = functional.interpolate(top, scale_factor=2.0, mode="nearest") + self.lateral[
                level
            ](maps[level])
        return top


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 3, 48, 48)]
