"""Source files of small PyTorch networks, as a user would write them."""

from __future__ import annotations


def two_convolutions(channels: tuple[int, int], classes: int, shape: tuple[int, ...]) -> str:
    """Two convolutions of so many channels, a mean and a linear layer, on images of `shape`."""
    first, second = channels
    return f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, {first}, 3, padding=1)
        self.second = torch.nn.Conv2d({first}, {second}, 3, padding=1)
        self.head = torch.nn.Linear({second}, {classes})

    def forward(self, x):
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.mean((2, 3)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn{shape}]
"""
