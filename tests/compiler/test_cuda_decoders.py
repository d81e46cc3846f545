"""Blocks of language models on CUDA: grouped heads, positions, gates, joined projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch.nn import functional

from support import placed_units
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Attention, Matmul, Norm, Unit

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
Found = TypeVar("Found", bound=Unit)
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
WIDTH = 24


def quick_gelu(x: Tensor) -> Tensor:
    """As CLIP has it."""
    return x * torch.sigmoid(1.702 * x)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def turned(x: Tensor) -> Tensor:
    """Rotary positions as Llama's code has them."""
    length, dim = x.shape[-2:]
    speeds = 1e4 ** -(torch.arange(0.0, dim, 2.0) / dim)
    angles = torch.arange(float(length))[:, None] * speeds
    angles = torch.cat((angles, angles), -1)
    half = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1)
    return x * angles.cos().to(x) + half * angles.sin().to(x)


class Heads(torch.nn.Module):
    """Attention whose keys and values have fewer heads than its queries."""

    def __init__(self, heads: int, shared: int, *, bias: bool, positions: bool) -> None:
        super().__init__()
        self.heads, self.shared, self.positions = heads, shared, positions
        own = WIDTH // heads * (heads // shared)
        self.q, self.k, self.v = (
            torch.nn.Linear(WIDTH, width, bias=bias) for width in (WIDTH, own, own)
        )
        self.o = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, -1, WIDTH // self.heads).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        if self.positions:
            q, k = turned(q), turned(k)
        k, v = (self.repeated(part) for part in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))

    def repeated(self, x: Tensor) -> Tensor:
        batch, heads, length, dim = x.shape
        wide = x[:, :, None].expand(batch, heads, self.shared, length, dim)
        return wide.reshape(batch, heads * self.shared, length, dim)


class Gated(torch.nn.Module):
    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.gate, self.up = (torch.nn.Linear(WIDTH, 40, bias=False) for _ in "gu")
        self.down = torch.nn.Linear(40, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (torch.nn.RMSNorm(WIDTH) for _ in "fsl")
        self.heads = Heads(4, 2, bias=False, positions=True)
        self.gated = Gated(functional.silu)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.heads(self.first(x))
        return self.last(x + self.gated(self.second(x)))


def one(units: list[Unit], kind: type[Found]) -> Found:
    (found,) = (unit for unit in units if isinstance(unit, kind))
    return found


@PRECISIONS
@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(6, 2), (6, 3), (4, 4), (3, 1)])
def test_heads_that_share_keys_are_read_where_they_lie(
    heads: int, shared: int, positions: bool, precision: Precision
) -> None:
    block = Heads(heads, shared, bias=shared == 2, positions=positions)
    units, _ = placed_units.of_torch(block, precision, random(2, 7, WIDTH))
    module = placed_units.lowered_torch(block, precision, random(2, 7, WIDTH))
    _, others = placed_units.launches(module)
    unit = one(units, Attention)
    assert (unit.heads, unit.shared, unit.causal) == (heads, shared, True)
    assert [type(u) for u in units].count(Matmul) == 2, "the projections are one product"
    moved = [name for name in others.elements() if "cast" not in name]
    assert len(moved) == (2 if positions else 0), "queries and keys are turned"


@PRECISIONS
def test_a_layer_of_a_decoder_is_ten_launches_and_a_norm(precision: Precision) -> None:
    block = Layer()
    placed_units.of_torch(block, precision, random(1, 9, WIDTH))  # compares with PyTorch
    module = placed_units.lowered_torch(block, precision, random(1, 9, WIDTH))
    units, others = placed_units.launches(module)
    assert units == {"norm": 3, "matmul": 5, "attention": 1}
    moved = [name for name in others.elements() if "cast" not in name]
    assert len(moved) == 2, "queries and keys are turned; casts are at the input and the output"


@PRECISIONS
@pytest.mark.parametrize(
    "activation", [functional.silu, functional.gelu, torch.sigmoid, quick_gelu]
)
def test_a_gate_is_part_of_the_product(
    activation: Callable[[Tensor], Tensor], precision: Precision
) -> None:
    units, others = placed_units.of_torch(Gated(activation), precision, random(2, 5, WIDTH))
    assert sorted(u.epilogue.residual for u in units if isinstance(u, Matmul)) == [
        "factor", "none", "none",
    ]  # fmt: skip
    assert not [name for name in others if "multiply" in name]


@PRECISIONS
@pytest.mark.parametrize(
    "after",
    [torch.relu, lambda x: x + 1.0, lambda x: x.clamp(max=0.1), functional.silu, lambda x: x * x],
    ids=["relu", "bias", "limit", "silu", "square"],
)
def test_what_follows_a_factor_is_computed_after_it(
    after: Callable[[Tensor], Tensor], precision: Precision
) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = torch.nn.Linear(16, WIDTH), torch.nn.Linear(16, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            return after(self.one(x) * self.other(x))

    placed_units.of_torch(Block(), precision, random(3, 16))  # compares with PyTorch


def test_projections_whose_results_others_read_stay_apart() -> None:
    class Block(Heads):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.relu(self.q(x))

    units, _ = placed_units.of_torch(
        Block(3, 1, bias=False, positions=False), FLOAT32, random(1, 5, WIDTH)
    )
    assert [type(u) for u in units].count(Matmul) >= 3


@PRECISIONS
def test_a_sum_in_rows_of_another_shape_is_computed_with_the_norm(precision: Precision) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.last = torch.nn.Linear(WIDTH, 8)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            total = (x + y).reshape(-1, WIDTH)
            return self.last(self.norm(total)), total * 2.0

    units, _ = placed_units.of_torch(Block(), precision, random(2, 3, WIDTH), random(2, 3, WIDTH))
    if precision == FLOAT32:
        assert one(units, Norm).residual
