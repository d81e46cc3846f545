"""Convolutions of volumes as generated CUDA kernels for the volumes' slices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as nnf
from torch import nn

from support import placed_units
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Conv2d, Unit

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
GENERATOR = torch.Generator().manual_seed(0)
LAYERS: dict[str, Callable[[], nn.Conv3d]] = {
    "plain": lambda: nn.Conv3d(12, 24, 3, padding=1),
    "uneven": lambda: nn.Conv3d(5, 21, (2, 3, 4), stride=(2, 1, 3), padding=(1, 0, 2)),
    "dilated": lambda: nn.Conv3d(8, 16, 3, padding=2, dilation=2),
    "groups": lambda: nn.Conv3d(12, 24, (3, 1, 1), groups=4),
    "one slice": lambda: nn.Conv3d(12, 24, (1, 3, 3), padding=(0, 1, 1)),
    "every second slice": lambda: nn.Conv3d(12, 24, 1, stride=2),
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def convolutions(units: list[Unit]) -> list[Conv2d]:
    return [unit for unit in units if isinstance(unit, Conv2d)]


@PRECISIONS
@pytest.mark.parametrize("name", LAYERS)
def test_a_volume_with_what_follows(name: str, precision: Precision) -> None:
    torch.manual_seed(0)
    conv = LAYERS[name]()
    block = nn.Sequential(conv, nn.GELU())
    units, others = placed_units.of_torch(block, precision, random(2, conv.in_channels, 7, 9, 8))
    (unit,) = convolutions(units)
    assert (unit.epilogue.bias, unit.epilogue.activation) == (True, "gelu")
    assert not [n for n in others if "conv" in n or "gelu" in n]
    assert len(others) == 2  # one moves the input, one the result


class Residual(nn.Module):
    """As video networks have it: windows of one slice, of several, a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(16, 24, (1, 3, 3), padding=(0, 1, 1))
        self.first = nn.Conv3d(24, 24, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm3d(24)
        self.second = nn.Conv3d(24, 24, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = nnf.relu(self.norm(self.first(x)))
        return nnf.relu(x + self.second(y)) * torch.linspace(1, 2, 5)[:, None, None]


@PRECISIONS
def test_a_network_of_volumes_is_moved_once_before_each_window(precision: Precision) -> None:
    torch.manual_seed(0)
    block = Residual()
    block.norm.running_mean = random(24) / 4
    block.norm.running_var = random(24).abs() + 0.5
    units, others = placed_units.of_torch(block, precision, random(2, 16, 5, 7, 6))
    assert sorted(u.epilogue.activation for u in convolutions(units)) == ["none", "relu", "relu"]
    assert [u.epilogue.residual for u in convolutions(units)].count("before") == 1
    assert not [n for n in others if "relu" in n]
    assert len(others) == 4  # the input, two windows of three slices, the result


@PRECISIONS
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.ConvTranspose3d(6, 8, 4, stride=2, padding=1),
        lambda: nn.ConvTranspose3d(6, 9, (3, 2, 5), (1, 3, 2), output_padding=(0, 2, 1), groups=3),
        lambda: nn.ConvTranspose2d(6, 9, 3, stride=2, padding=1, groups=3),
        lambda: nn.ConvTranspose1d(6, 8, 5, stride=3, padding=2, output_padding=1),
    ],
    ids=["volumes", "groups of volumes", "groups of images", "signals"],
)  # fmt: skip
def test_transposed_convolutions_are_ordinary_ones(
    layer: Callable[[], nn.ConvTranspose3d], precision: Precision
) -> None:
    torch.manual_seed(0)
    made = layer()
    sizes = (5, 6, 7)[: made.weight.ndim - 2]
    units, others = placed_units.of_torch(made, precision, random(2, 6, *sizes))
    assert len(convolutions(units)) == 1
    assert not [n for n in others if "conv" in n]
