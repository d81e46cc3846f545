"""A U-Net of two levels."""

import torch
from torch import nn
from torch.nn import functional


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = double(3, 8), double(8, 16), double(16, 32)
        self.up2, self.merge2 = nn.ConvTranspose2d(32, 16, 2, stride=2), double(32, 16)
        self.up1, self.merge1 = nn.ConvTranspose2d(16, 8, 2, stride=2), double(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        y = self.bottom(functional.max_pool2d(second, 2))
        y = self.merge2(torch.cat((self.up2(y), second), dim=1))
        return self.head(self.merge1(torch.cat((self.up1(y), first), dim=1)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, 3, 32, 32)]
