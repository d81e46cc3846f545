"""Softmax, RMS norm and sums before norms as generated CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from support import placed_units
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Norm, Softmax, Unit

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


class Between(torch.nn.Module):
    """An operator between two products, which keep its values in the model's precision."""

    def __init__(self, inner: Callable[[Tensor], Tensor], width: int = 24) -> None:
        super().__init__()
        self.inner = inner
        self.first, self.second = torch.nn.Linear(16, width), torch.nn.Linear(width, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.inner(self.first(x)))


class Plain(torch.nn.Module):
    def __init__(
        self, function: Callable[..., Tensor | tuple[Tensor, ...]], width: int = 0
    ) -> None:
        super().__init__()
        self.function = function
        self.norm = torch.nn.LayerNorm(width) if width else None

    def forward(self, *given: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.function(*given) if self.norm is None else self.function(self.norm, *given)


def rows_of(units: list[Unit]) -> list[Softmax | Norm]:
    return [unit for unit in units if isinstance(unit, Softmax | Norm)]


@PRECISIONS
@pytest.mark.parametrize("log", [False, True])
def test_softmax_with_its_factor(log: bool, precision: Precision) -> None:
    operator = torch.log_softmax if log else torch.softmax
    block = Between(lambda x: operator(x * 0.5, -1))
    units, others = placed_units.of_torch(block, precision, random(2, 5, 16))
    (unit,) = rows_of(units)
    assert isinstance(unit, Softmax)
    assert (unit.rows, unit.columns, unit.log) == (10, 24, log)
    assert (unit.dtype, unit.output) == (precision.dtype, None)
    assert unit.scale == pytest.approx(0.5)
    assert len(units) == 3
    assert not [name for name in others if "softmax" in name or "multiply" in name]


def test_a_wide_softmax_of_narrow_values_is_not_rounded() -> None:
    head = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Softmax(-1))
    units, others = placed_units.of_torch(head, FLOAT16, random(3, 16))
    (unit,) = rows_of(units)
    assert unit.tensors[-1].dtype == "float32"
    assert [name for name in others if "cast" in name] in ([], ["cast"])  # the model's input


def test_softmax_over_another_axis_is_left() -> None:
    units, _ = placed_units.of_torch(Plain(lambda x: x.softmax(1)), FLOAT32, random(2, 5, 7))
    assert not units


def mean_square(x: Tensor) -> Tensor:
    return x.float().pow(2).mean(-1, keepdim=True)


WEIGHT = random(24)
RMS: dict[str, tuple[bool, Callable[[Tensor], Tensor]]] = {
    "llama": (True, lambda x: WEIGHT * (x.float() * torch.rsqrt(mean_square(x) + 1e-6)).to(x)),
    "pytorch": (True, lambda x: torch.rms_norm(x, (24,), WEIGHT, 1e-6)),
    "divided": (True, lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * WEIGHT),
    "reciprocal": (True, lambda x: x * (1 / (mean_square(x) + 1e-6).sqrt()) * WEIGHT),
    "bare": (False, lambda x: x * torch.rsqrt(mean_square(x) + 1e-6)),
}


@PRECISIONS
@pytest.mark.parametrize("form", RMS)
def test_rms_norm_in_its_usual_forms(form: str, precision: Precision) -> None:
    scaled, inner = RMS[form]
    units, others = placed_units.of_torch(Between(inner), precision, random(2, 5, 16))
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.form, unit.rows, unit.columns) == ("rms", 10, 24)
    assert (unit.dtype, unit.output, unit.scale) == (precision.dtype, None, scaled)
    assert not [name for name in others if "mean" in name or "power" in name]


LENGTHS: dict[str, Callable[[Tensor], Tensor]] = {
    "pytorch": lambda x: torch.nn.functional.normalize(x, dim=-1),
    "limited": lambda x: torch.nn.functional.normalize(x, dim=-1, eps=0.5),
    "divided": lambda x: x / x.norm(dim=-1, keepdim=True),
    "by hand": lambda x: x / (x * x).sum(-1, keepdim=True).sqrt(),
}


@PRECISIONS
@pytest.mark.parametrize("form", LENGTHS)
def test_rows_of_length_one(form: str, precision: Precision) -> None:
    x = random(2, 5, 16)
    units, others = placed_units.of_torch(Between(LENGTHS[form]), precision, x)
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.form, unit.rows, unit.columns, unit.scale) == ("length", 10, 24, False)
    assert unit.epsilon == pytest.approx({"pytorch": 1e-12, "limited": 0.5}.get(form, 0.0))
    assert (unit.dtype, unit.output) == (precision.dtype, None)
    assert not [name for name in others if "sum" in name or "divide" in name]


@pytest.mark.parametrize(
    "inner",
    [
        lambda x: torch.nn.functional.normalize(x, dim=1),
        lambda x: torch.nn.functional.normalize(x, p=1.0, dim=-1),
        lambda x: x / x.norm(dim=-1, keepdim=True).clamp(max=3.0),
        lambda x: x.exp() / x.norm(dim=-1, keepdim=True),
    ],
    ids=["other axis", "other norm", "an upper limit", "other values"],
)
def test_what_has_not_length_one(inner: Callable[[Tensor], Tensor]) -> None:
    units, _ = placed_units.of_torch(Between(inner), FLOAT32, random(2, 5, 16))
    assert not rows_of(units)


class Heads(torch.nn.Module):
    """Queries and keys are normed head by head, as parts of one projection or of two."""

    def __init__(self, norm: Callable[[int], torch.nn.Module], joint: bool = True) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(32, 96) if joint else None
        self.parts = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(0 if joint else 3))
        self.norms = torch.nn.ModuleList((norm(16), norm(16)))

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, width = x.shape
        if self.qkv is not None:
            joint = self.qkv(x).reshape(batch, rows, 3, 2, 16).permute(2, 0, 3, 1, 4)
            q, k, v = joint.unbind(0)
        else:
            q, k, v = (part(x).view(batch, rows, 2, 16).transpose(1, 2) for part in self.parts)
        q, k = self.norms[0](q), self.norms[1](k)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).reshape(batch, rows, width)


@PRECISIONS
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("norm", [torch.nn.LayerNorm, torch.nn.RMSNorm])
def test_norms_of_heads_read_a_projection_in_place(
    norm: Callable[[int], torch.nn.Module], joint: bool, precision: Precision
) -> None:
    """Also one that was made of three."""
    units, others = placed_units.of_torch(Heads(norm, joint), precision, random(2, 5, 32))
    found = rows_of(units)
    assert [(unit.rows, unit.columns) for unit in found] == [(20, 16)] * 2
    assert all(isinstance(unit, Norm) and unit.x is not None for unit in found)
    assert {unit.x.offset for unit in found if isinstance(unit, Norm) and unit.x} == {0, 32}
    assert sorted(unit.kind for unit in units) == ["attention", "matmul", "norm", "norm"]
    assert not [name for name in others if "transpose" in name or "slice" in name]


@pytest.mark.parametrize(
    "inner",
    [
        lambda x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6),
        lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True).abs() + 0.5),
        lambda x: x.exp() * torch.rsqrt(mean_square(x) + 1e-6),
        lambda x: x * torch.rsqrt(mean_square(x) + x[..., :1].abs() + 1.0),
    ],
    ids=["other axis", "cubes", "other values", "no number"],
)
def test_what_is_no_rms_norm(inner: Callable[[Tensor], Tensor]) -> None:
    units, _ = placed_units.of_torch(Between(inner), FLOAT32, random(2, 5, 16))
    assert not rows_of(units)


def test_a_weight_of_the_rows_is_multiplied_later() -> None:
    weight = random(5, 1)
    units, _ = placed_units.of_torch(
        Between(lambda x: x * torch.rsqrt(mean_square(x) + 1e-6) * weight),
        FLOAT32,
        random(2, 5, 16),
    )
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert not unit.scale


Layer = Callable[[Tensor], Tensor]


@PRECISIONS
def test_a_sum_before_a_norm(precision: Precision) -> None:
    inputs = random(3, 33), random(3, 33)
    units, others = placed_units.of_torch(
        Plain(lambda norm, x, y: norm(x + y), 33), precision, *inputs
    )
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.residual, unit.keep_sum) == (True, False)
    assert not others


@PRECISIONS
def test_a_sum_that_is_read_before_and_after_its_norm(precision: Precision) -> None:
    def function(norm: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        total = x + y
        early = total.exp()
        return norm(total) * early, total

    inputs = random(2, 3, 33), random(2, 3, 33)
    units, others = placed_units.of_torch(Plain(function, 33), precision, *inputs)
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.residual, unit.keep_sum) == (True, True)
    assert not [name for name in others if "add" in name]


@PRECISIONS
def test_an_rms_norm_of_a_sum_that_is_kept(precision: Precision) -> None:
    weight = random(21)

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        total = x + y
        return torch.rms_norm(total, (21,), weight, 1e-5), total

    inputs = random(3, 21), random(3, 21)
    units, others = placed_units.of_torch(Plain(function), precision, *inputs)
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.form, unit.residual, unit.keep_sum) == ("rms", True, True)
    assert not others


@PRECISIONS
def test_a_sum_that_other_kernels_compute_is_left(precision: Precision) -> None:
    """Of an elementwise kernel or a product's it costs no launch."""

    def function(norm: Layer, x: Tensor, y: Tensor) -> Tensor:
        return norm(x.exp() + y)

    inputs = random(3, 33), random(3, 33)
    units, _ = placed_units.of_torch(Plain(function, 33), precision, *inputs)
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert not unit.residual

    class After(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(16), torch.nn.Linear(16, 16)
            self.first = torch.nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.norm(x + self.linear(x))

    units, _ = placed_units.of_torch(After(), precision, random(3, 16))
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert not unit.residual
    assert sorted(u.epilogue.residual for u in units if u.kind == "matmul") == ["before", "none"]  # type: ignore[attr-defined]


class PreNorm(torch.nn.Module):
    """Blocks as in GPT: sums stay wide, each is read by a norm and by the next sum."""

    def __init__(self, norm: type[torch.nn.Module], blocks: int = 3) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 32)
        self.norms = torch.nn.ModuleList(norm(32) for _ in range(blocks + 1))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(blocks))

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        for norm, layer in zip(self.norms, self.layers, strict=False):
            x = x + layer(norm(x))
        found: Tensor = self.norms[-1](x)
        return found


@pytest.mark.parametrize("norm", [torch.nn.LayerNorm, torch.nn.RMSNorm])
def test_wide_sums_between_blocks_are_computed_by_their_norms(norm: type[torch.nn.Module]) -> None:
    torch.manual_seed(0)
    tokens = torch.arange(14).reshape(2, 7)
    units, others = placed_units.of_torch(PreNorm(norm), FLOAT16, tokens)
    norms = {(u.dtype, u.output, u.residual, u.keep_sum) for u in units if isinstance(u, Norm)}
    assert norms == {
        ("float32", "float16", False, False),  # of the embedding
        ("float32", "float16", True, True),
        ("float32", None, True, False),  # the last one
    }
    assert not [n for n in others if "add" in n or "layer_norm" in n or "mean" in n]
    sums = {u.tensors[-1].dtype for u in units if u.kind == "matmul"}
    assert sums == {"float32"}


def test_a_value_that_is_cast_for_a_norm_alone_is_cast_where_it_is_computed() -> None:
    units, _ = placed_units.of_torch(
        Plain(lambda norm, x: norm(x.exp()), 33), FLOAT16, random(3, 33)
    )
    (unit,) = rows_of(units)
    assert unit.dtype == "float16"


BIAS = random(24)


def by_hand(x: Tensor) -> Tensor:
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    spread = centred.pow(2).mean(-1, keepdim=True)
    return (WEIGHT * (centred * torch.rsqrt(spread + 1e-6)) + BIAS).to(x)


def divided(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    spread = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(spread + 1e-6) * WEIGHT


@PRECISIONS
@pytest.mark.parametrize(("inner", "bias"), [(by_hand, True), (divided, False)])
def test_layer_norm_written_by_hand(
    inner: Callable[[Tensor], Tensor], bias: bool, precision: Precision
) -> None:
    block, x = Between(inner), random(2, 5, 16)
    units, _ = placed_units.of_torch(block, precision, x)
    (unit,) = rows_of(units)
    assert isinstance(unit, Norm)
    assert (unit.form, unit.scale, unit.bias) == ("layer", True, bias)
    _, others = placed_units.launches(placed_units.lowered_torch(block, precision, x))
    assert not [name for name in others if "cast" not in name and name != "reshape"]


@PRECISIONS
def test_heads_are_normed_before_they_are_moved(precision: Precision) -> None:
    """Rows of a permuted value are normed in their place."""

    def normed(x: Tensor) -> Tensor:
        heads = x.reshape(2, 5, 3, 8).transpose(1, 2)
        heads = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-6) * WEIGHT[:8]
        return heads.transpose(1, 2).reshape(2, 5, 24)

    block, x = Between(normed), random(2, 5, 16)
    units, _ = placed_units.of_torch(block, precision, x)
    (unit,) = rows_of(units)
    assert (unit.rows, unit.columns) == (30, 8)
    _, others = placed_units.launches(placed_units.lowered_torch(block, precision, x))
    assert not [name for name in others if "cast" not in name and name != "reshape"]


@PRECISIONS
def test_rows_and_columns_that_are_exchanged_are_no_rows(precision: Precision) -> None:
    def normed(x: Tensor) -> Tensor:
        turned = x.reshape(2, 5, 24).transpose(1, 2)
        turned = turned * torch.rsqrt(turned.pow(2).mean(-1, keepdim=True) + 1e-6)
        return turned.transpose(1, 2)

    placed_units.of_torch(Between(normed), precision, random(2, 5, 16))  # compares with PyTorch
