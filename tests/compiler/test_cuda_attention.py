"""Attention as one generated CUDA kernel, in the forms in which models write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf

from support import placed_units
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Attention, Heads

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
Mask = Callable[[Tensor], Tensor]
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
GENERATOR = torch.Generator().manual_seed(0)
LEAST = torch.finfo(torch.float32).min


class Scores(torch.nn.Module):
    """Attention as it is written by hand: `mask` takes and returns the scores."""

    def __init__(self, mask: Callable[..., Tensor], scale: float = 0.2) -> None:
        super().__init__()
        self.mask, self.scale = mask, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) * self.scale
        return self.mask(scores, *given).softmax(-1) @ v


class Turned(torch.nn.Module):
    """Attention over pixels, with the channels of the values before the pixels."""

    def __init__(self, folded: bool) -> None:
        super().__init__()
        self.qkv, self.folded = torch.nn.Conv2d(16, 48, 1), folded

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        heads = self.qkv(x).view(batch, 2, 24, height * width)
        q, k, v = heads.split(8, 2)
        scores = q.transpose(-1, -2) @ k * 0.3
        weights = scores.softmax(-1)
        if self.folded:
            weights, v = weights.flatten(0, 1), v.flatten(0, 1)
        return (v @ weights.transpose(-1, -2)).reshape(batch, 16, height, width)


class Projected(torch.nn.Module):
    """A layer as nanoGPT writes it: query, key and value are parts of one product."""

    def __init__(self, mask: Mask | None, heads: int = 2, width: int = 32) -> None:
        super().__init__()
        self.heads, self.mask = heads, mask
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.register_buffer("seen", torch.tril(torch.ones(40, 40)).view(1, 1, 40, 40))

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        q, k, v = (
            part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        if self.mask is None:
            y = nnf.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = Scores(self.mask)(q, k, v, self.seen[:, :, :rows, :rows])
        return self.out(y.transpose(1, 2).reshape(batch, rows, width))


CAUSAL: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "pytorch's": None,
    "masked_fill": lambda s, seen: s.masked_fill(seen == 0, float("-inf")),
    "where": lambda s, seen: torch.where(seen.bool(), s, torch.full([], LEAST)),
    "added": lambda s, seen: s + (1 - seen) * -10000.0,
    "triangle": lambda s, seen: s.masked_fill(
        torch.ones(seen.shape[-2:]).triu(1).bool(), float("-inf")
    ),
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def attentions(units: list[Any]) -> list[Attention]:
    return [unit for unit in units if isinstance(unit, Attention)]


@PRECISIONS
@pytest.mark.parametrize("form", CAUSAL)
def test_causal_attention_reads_no_mask(form: str, precision: Precision) -> None:
    torch.manual_seed(0)
    units, others = placed_units.of_torch(Projected(CAUSAL[form]), precision, random(3, 17, 32))
    assert sorted(unit.kind for unit in units) == ["attention", "matmul", "matmul"]
    (unit,) = attentions(units)
    assert (unit.causal, unit.mask, unit.keys) == (True, None, 17)
    assert unit.q == Heads(batch=17 * 96, head=16, row=96)
    assert unit.v == Heads(batch=17 * 96, head=16, row=96, offset=64)
    assert not [n for n in others if "slice" in n or "transpose" in n or "where" in n]


def shifted(diagonal: int, fill: float = float("-inf")) -> Mask:
    def mask(scores: Tensor) -> Tensor:
        seen = torch.ones(scores.shape[-2:]).tril(diagonal)
        return scores.masked_fill(seen == 0, fill)

    return mask


@pytest.mark.parametrize(
    ("diagonal", "causal", "keys", "masked"),
    [(4, True, 9, False), (0, True, 5, False), (2, True, 7, False), (9, False, 9, False),
     (6, False, 9, True)],
)  # fmt: skip
def test_the_diagonal_of_a_mask(diagonal: int, causal: bool, keys: int, masked: bool) -> None:
    """Keys that no query sees are not read; a kernel's last query sees its last key."""
    inputs = random(2, 3, 5, 16), random(2, 3, 9, 16), random(2, 3, 9, 8)
    units, _ = placed_units.of_torch(Scores(shifted(diagonal)), FLOAT32, *inputs)
    (unit,) = attentions(units)
    assert (unit.causal, unit.keys, unit.mask is not None) == (causal, keys, masked)


def test_a_window_and_a_bias_of_distances_are_read() -> None:
    def window(scores: Tensor) -> Tensor:
        ones = torch.ones(scores.shape[-2:])
        return scores.masked_fill((ones.tril(1) * ones.triu(-1)) == 0, -1e9)

    def distances(scores: Tensor) -> Tensor:
        at = torch.arange(float(scores.shape[-1]))
        return scores + (at[:, None] - at[None, :]).abs() * -0.1

    inputs = random(1, 2, 11, 16), random(1, 2, 11, 16), random(1, 2, 11, 16)
    for mask in (window, distances):
        units, _ = placed_units.of_torch(Scores(mask), FLOAT32, *inputs)
        (unit,) = attentions(units)
        assert (unit.causal, unit.mask) == (False, (0, 0, 11))


@pytest.mark.parametrize(
    "mask",
    [
        shifted(-1, -1e9),  # the first query sees nothing: all keys have the same weight
        shifted(0, -5.0),  # what is filled in keeps a weight
        lambda scores: (scores + 1.0).relu(),
    ],
    ids=["no key", "not hidden", "no mask"],
)
def test_scores_that_no_kernel_computes(mask: Mask) -> None:
    inputs = random(1, 2, 7, 16), random(1, 2, 7, 16), random(1, 2, 7, 16)
    units, _ = placed_units.of_torch(Scores(mask), FLOAT32, *inputs)
    assert not attentions(units)


@PRECISIONS
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_of_the_program_is_read(causal: bool, precision: Precision) -> None:
    def mask(scores: Tensor, given: Tensor) -> Tensor:
        scores = shifted(0)(scores) if causal else scores
        return scores.masked_fill(given[:, None, None, :], float("-inf"))

    hidden = torch.arange(13)[None] >= torch.tensor([[13], [6]])
    inputs = random(2, 2, 13, 16), random(2, 2, 13, 16), random(2, 2, 13, 16)
    units, _ = placed_units.of_torch(Scores(mask), precision, *inputs, hidden)
    (unit,) = attentions(units)
    assert (unit.causal, unit.mask) == (causal, (13, 0, 0))


@PRECISIONS
def test_a_mask_may_be_the_first_term(precision: Precision) -> None:
    inputs = random(2, 2, 7, 16), random(2, 2, 7, 16), random(2, 2, 7, 16), random(2, 2, 7, 7)
    units, _ = placed_units.of_torch(Scores(lambda s, given: given + s * 0.5), precision, *inputs)
    (unit,) = attentions(units)
    assert unit.mask == (2 * 7 * 7, 7 * 7, 7)


@PRECISIONS
def test_projections_of_two_sources_are_units(precision: Precision) -> None:
    """Keys and values come from elsewhere, as in a decoder: parts of one weight are constants."""
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(16, 4, batch_first=True)

    class Cross(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            found: Tensor = self.layer(x, y, y, need_weights=False)[0]
            return found

    units, others = placed_units.of_torch(Cross(), precision, random(2, 5, 16), random(2, 7, 16))
    assert {unit.kind for unit in units} == {"attention", "matmul"}
    assert not [name for name in others if "matmul" in name or "transpose" in name]


@PRECISIONS
def test_attention_of_the_models_inputs(precision: Precision) -> None:
    """Nothing is moved: neither a transposed key nor the result."""

    class Direct(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return nnf.scaled_dot_product_attention(q, k, v)

    inputs = random(2, 3, 7, 24), random(2, 3, 9, 24), random(2, 3, 9, 16)
    units, others = placed_units.of_torch(Direct(), precision, *inputs)
    (unit,) = units
    assert isinstance(unit, Attention)
    assert unit.y == Heads(batch=3 * 7 * 16, head=7 * 16, row=16)
    assert not [name for name in others if "transpose" in name or "multiply" in name]


class Windows(torch.nn.Module):
    """Attention inside windows of an image, as Swin and MaxViT write it."""

    def __init__(self, *, axes: int, shifted: bool = False, cosine: bool = False) -> None:
        super().__init__()
        self.axes, self.shifted, self.cosine = axes, shifted, cosine
        generator = torch.Generator().manual_seed(1)
        self.qkv, self.out = torch.nn.Linear(12, 36), torch.nn.Linear(12, 12)
        self.register_buffer("distances", torch.randn(2, 9, 9, generator=generator))
        hidden = torch.randn(5, 9, 9, generator=generator) > 1.0
        hidden = hidden & ~torch.eye(9).bool()
        self.register_buffer("hidden", torch.where(hidden, -100.0, 0.0))
        self.register_buffer("scales", torch.tensor([2.0, 5.0]).reshape(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, windows, rows, width = x.shape
        lead = (batch, windows) if self.axes == 5 else (batch * windows,)
        qkv = self.qkv(x).reshape(*lead, rows, 3, 2, width // 2)
        q, k, v = qkv.movedim(-3, 0).transpose(-2, -3)
        if self.cosine:
            q, k = nnf.normalize(q, dim=-1), nnf.normalize(k, dim=-1)
        scores = q @ k.transpose(-1, -2)
        scores = scores * self.scales if self.cosine else scores * 0.5
        scores = scores + self.distances
        if self.shifted:
            scores = scores.reshape(batch, windows, 2, rows, rows) + self.hidden[:, None]
            scores = scores.reshape(*lead, 2, rows, rows)
        y = (scores.softmax(-1) @ v).transpose(-2, -3)
        return self.out(y.reshape(batch, windows, rows, width))


@PRECISIONS
@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("axes", [4, 5])
def test_windows_of_an_image_are_one_kernel(
    axes: int, shifted: bool, cosine: bool, precision: Precision
) -> None:
    block = Windows(axes=axes, shifted=shifted, cosine=cosine)
    units, _ = placed_units.of_torch(block, precision, random(3, 5, 9, 12))
    (unit,) = attentions(units)
    assert (unit.batch, unit.heads, unit.queries, unit.dim) == (15, 2, 9, 6)
    assert unit.mask_batches == (5 if shifted else None)
    assert unit.scale == (5.0 if cosine else 0.5)


@PRECISIONS
@pytest.mark.parametrize("folded", [False, True])
def test_values_on_the_left(folded: bool, precision: Precision) -> None:
    x = torch.randn(2, 16, 5, 3, generator=GENERATOR)
    units, _ = placed_units.of_torch(Turned(folded), precision, x)
    (unit,) = (unit for unit in units if isinstance(unit, Attention))
    assert (unit.batch, unit.heads, unit.queries, unit.dim) == (2, 2, 15, 8)
    assert sorted(unit.kind for unit in units) == ["attention", "conv2d"]
