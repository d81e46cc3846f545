"""3D convolution, softmax over channels and pooling twice."""

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.softmax(self.conv(x), dim=1)
        return functional.max_pool3d(functional.max_pool3d(x, 2), 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 3, 14, 18, 18)]
