"""Moves and casts that several kernels read are computed by each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from support import placed_units
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)


class Block(torch.nn.Module):
    def __init__(self, read: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 24), torch.nn.Linear(5, 8, bias=False)
        self.read = read

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.read(self.first(x), self.second)


def moves(block: torch.nn.Module, precision: Precision, *shape: int) -> list[str]:
    """The kernels that compute nothing."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    placed_units.of_torch(block, precision, x)  # compares with PyTorch
    _, found = placed_units.launches(placed_units.lowered_torch(block, precision, x))
    computing = ("exp", "sin", "sum")
    names = [name for name in found.elements() if not any(word in name for word in computing)]
    return [name for name in names if name not in ("cast", "fused_reshape_cast")]  # the input's


def sliced(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y[..., 3:11]
    return part.exp(), part.sin()


def moved(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.transpose(1, 2).reshape(2, 3, 8, 5)[:, 1:]
    return part.exp(), part.sin().sum(2), part.sin()


def cast(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    wide = y.double()
    return wide.sum(1), wide.exp()


def sliced_and_summed(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.reshape(2, 5, 3, 8).movedim(2, 0)[1]
    return part.sum(-1), part.sin(), part.double().sum(1)


def listed(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.reshape(2, 5, 6, 4)[:, :, [1, 3, 5]]
    return part.exp(), part.sin()


@PRECISIONS
@pytest.mark.parametrize("read", [sliced, moved, cast, sliced_and_summed, listed])
def test_each_reader_reads_the_source(
    read: Callable[..., tuple[Tensor, ...]], precision: Precision
) -> None:
    assert moves(Block(read), precision, 2, 5, 16) == []


def meeting(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y[..., 3:11]
    return (part.exp() * part.sin(),)


def read_by_a_product(y: Tensor, second: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.transpose(1, 2)
    return second(part), part.exp()


def summed(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.transpose(1, 2).reshape(2, 3, 8, 5)[:, 1:]
    return part.sum(2), part.sin()


@pytest.mark.parametrize(("read", "left"), [(meeting, 0), (read_by_a_product, 1), (summed, 1)])
def test_what_others_read_is_stored_once(
    read: Callable[..., tuple[Tensor, ...]], left: int
) -> None:
    assert len(moves(Block(read), FLOAT32, 2, 5, 16)) == left


def transposed(y: Tensor, _: torch.nn.Module) -> tuple[Tensor, ...]:
    part = y.transpose(1, 2)
    return part.exp(), part.sin()


@pytest.mark.parametrize(("rows", "left"), [(5, 0), (12000, 1)])
def test_a_large_transposition_is_a_kernel_of_its_own(rows: int, left: int) -> None:
    assert len(moves(Block(transposed), FLOAT32, 1, rows, 16)) == left
