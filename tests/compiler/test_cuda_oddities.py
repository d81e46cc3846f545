"""Programs that are rarely written, on CUDA: what a pass does not expect, it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from support import placed_units
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Attention, Matmul

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


class Program(torch.nn.Module):
    """A function of constants and inputs."""

    def __init__(self, function: Callable[..., Any], **constants: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *given: Tensor) -> Any:
        return self.function(self, *given)


def computed(module: tvm.IRModule, *inputs: np.ndarray[Any, Any]) -> list[Any]:
    made = placed_units.lowered(module, CompileOptions(precision=FLOAT32)).module
    return placed_units.run(made, *inputs)


class Pooled(torch.nn.Module):
    """A learned query that attends to all positions, as SigLIP and Perceiver have it."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = torch.nn.Parameter(random(1, 1, 32))
        self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(self.probe.repeat(x.shape[0], 1, 1), x, x)[0]


@PRECISIONS
@pytest.mark.parametrize("batch", [1, 2])
def test_what_depends_on_no_input_is_computed_by_the_compiler(
    batch: int, precision: Precision
) -> None:
    block = Pooled().requires_grad_(False)
    units, _ = placed_units.of_torch(block, precision, random(batch, 16, 32))
    assert [type(unit) for unit in units].count(Attention) == 1


def test_a_unit_of_constants_is_not_placed() -> None:
    """TVM folds calls of constants by running them, and a unit's kernel does not run there."""

    def product(self: Any, x: Tensor) -> Tensor:
        shaped = (self.one.sin() @ self.two).reshape(1, 24)
        return functional.layer_norm(shaped, (24,)) + x

    block = Program(product, one=random(3, 32), two=random(32, 8))
    units, _ = placed_units.of_torch(block, FLOAT32, random(5, 24))
    assert not [unit for unit in units if isinstance(unit, Matmul)]


@I.ir_module
class Nonzero:
    @R.function
    def main(x: R.Tensor((8, 32), "float32")):  # type: ignore[no-untyped-def]  # noqa: N805
        with R.dataflow():
            i = R.nonzero(x)
            n = T.int64()
            k = R.match_cast(i, R.Tensor((2, n), "int64"))
            t = R.astype(k, "float32")
            a = R.exp(t)
            b = R.sin(t)
            R.output(a, b)
        return (a, b)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((8, 32), "float32"), p: R.Tensor((), "float32")):  # type: ignore[no-untyped-def]  # noqa: N805
        t = R.astype(p, "bool")
        a = R.where(t, x, R.exp(x))
        b = R.logical_not(t)
        if t:  # noqa: SIM108
            d = R.exp(x)
        else:
            d = R.sin(x)
        return (a, b, d)


@I.ir_module
class Clipped:
    @R.function
    def main(x: R.Tensor((8, 4, 32), "float32")):  # type: ignore[no-untyped-def]  # noqa: N805
        with R.dataflow():
            t = R.take(x, R.const(-1, "int64"), axis=1, mode="clip")
            a = R.exp(t)
            R.output(a)
        return a


def test_sizes_known_at_run_time_are_left_alone() -> None:
    assert placed_units.lowered(Nonzero, CompileOptions(precision=FLOAT32)).module is not None


def test_a_condition_is_computed_where_it_is() -> None:
    x = np.random.default_rng(0).standard_normal((8, 32), np.float32)
    first, _, last = computed(Branches, x, np.array(1.0, np.float32))
    np.testing.assert_array_equal(first, x)
    np.testing.assert_allclose(last, np.exp(x), rtol=1e-5)


def test_an_index_may_be_clipped() -> None:
    x = np.random.default_rng(0).standard_normal((8, 4, 32), np.float32)
    (found,) = computed(Clipped, x)
    np.testing.assert_allclose(found, np.exp(x[:, 0]), rtol=1e-5)


def attention(scores: Callable[[Any, Tensor], Tensor]) -> Callable[..., Tensor]:
    def function(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scores(self, q @ k.transpose(-1, -2)).softmax(-1) @ v

    return function


def heads(*lead: int) -> list[Tensor]:
    return [random(*lead, 16, 8) for _ in "qkv"]


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 16, 16), (1, 1, 1, 1, 16), (2, 4, 1, 16, 16), (3, 1, 1)]
)
@pytest.mark.parametrize("hides", [False, True])
def test_masks_of_scores_with_further_axes(shape: tuple[int, ...], hides: bool) -> None:
    mask = random(*shape)
    if hides:
        seen = (mask < 0.7) | torch.eye(16).bool()
        mask = torch.where(seen, 0.0, float("-inf"))[..., : shape[-2], : shape[-1]]
        mask[..., 0] = 0.0
    block = Program(attention(lambda self, s: s + self.mask), mask=mask)
    placed_units.of_torch(block, FLOAT32, *heads(2, 4, 3))


@pytest.mark.parametrize("shape", [(3, 1, 16, 16), (3, 1, 1, 1, 16)])
def test_a_mask_for_scores_of_another_form(shape: tuple[int, ...]) -> None:
    """Its first axis has as many elements as the batch, and is another one."""

    def seen(self: Any, scores: Tensor) -> Tensor:
        return (scores.reshape(3, 3, 2, 16, 16) + self.mask).reshape(3, 6, 16, 16)

    block = Program(attention(seen), mask=random(*shape))
    placed_units.of_torch(block, FLOAT32, *heads(3, 6))


def test_a_mask_where_batch_and_heads_are_one_axis() -> None:
    def seen(self: Any, scores: Tensor) -> Tensor:
        return (scores.reshape(6, 16, 16) + self.mask).reshape(2, 3, 16, 16)

    block = Program(attention(seen), mask=random(6, 1, 16))
    placed_units.of_torch(block, FLOAT32, *heads(2, 3))


SCALES = torch.tensor([100.0, 80.0, 50.0]).reshape(3, 1, 1)


def test_a_factor_of_heads_does_not_overflow() -> None:
    q, k, v = heads(2, 3)
    block = Program(attention(lambda self, s: s * self.scales), scales=SCALES)
    units, _ = placed_units.of_torch(block, FLOAT16, q * 400, k * 1e-4, v)
    assert [type(unit) for unit in units] == [Attention]


def test_a_factor_of_heads_for_scores_of_another_type() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        q, k, v = ((x @ w).view(2, 16, 3, 8).transpose(1, 2) for w in (self.q, self.k, self.v))
        scores = (q.half() @ k.half().transpose(-1, -2)).float() * self.scales
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 16, 24)

    weights = {name: random(24, 24) / 5 for name in "qkv"}
    block = Program(function, scales=SCALES / 20, **weights)
    x = random(2, 16, 24)
    module = placed_units.lowered_torch(block, FLOAT32, x)
    (found,) = placed_units.run(module, x.numpy())
    np.testing.assert_allclose(found, block(x).numpy(), atol=0.02)


def test_a_long_chain_before_attention_takes_no_longer() -> None:
    def function(self: Any, x: Tensor) -> Tensor:
        q, k, v = (x @ w for w in (self.q, self.k, self.v))
        for _ in range(40):
            q = q * q + q
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    weights = {name: random(24, 24) / 50 for name in "qkv"}
    start = time.monotonic()
    placed_units.of_torch(Program(function, **weights), FLOAT32, random(2, 16, 24) / 100)
    assert time.monotonic() - start < 60


def test_a_number_is_added_to_a_product_of_one_column() -> None:
    block = Program(lambda self, x: x @ self.w + 1.0, w=random(24, 1))
    placed_units.of_torch(block, FLOAT32, random(5, 24))


def test_a_value_between_a_sum_and_its_norm_is_read_by_others() -> None:
    def function(self: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = x.half(), y.half()
        total = x @ self.m.half() + (y @ self.m.half()).relu()
        wide = total.reshape(4, 8, 32).float()
        normed = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        return ((normed.half() * self.w.half()) @ self.m.half()).float(), wide @ self.m

    block = Program(function, w=random(32), m=random(32, 32))
    inputs = random(32, 32), random(32, 32)
    module = placed_units.lowered_torch(block, FLOAT32, *inputs)
    found = placed_units.run(module, *(x.numpy() for x in inputs))
    for mine, theirs in zip(found, block(*inputs), strict=True):
        scale = float(theirs.abs().max())
        np.testing.assert_allclose(mine / scale, theirs.numpy() / scale, atol=0.01)


WEIGHT = random(32, 32) / 6
CONV = torch.nn.Conv2d(16, 16, 3, padding=1)
REPEATED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], list[str]]] = {
    # a window of an image, or another order of its axes, is not contiguous in PyTorch
    "channels last": (
        lambda x: functional.linear(x.permute(0, 2, 3, 1), WEIGHT),
        (random(2, 32, 6, 5),),
        ["matmul"],
    ),
    "batch of one": (torch.matmul, (random(1, 6, 8), random(1, 8, 16)), ["matmul"]),
    "experts": (lambda x: torch.bmm(x, WEIGHT.reshape(4, 8, 32)), (random(4, 5, 8),), ["matmul"]),
}  # fmt: skip


@PRECISIONS
@pytest.mark.parametrize("name", REPEATED)
def test_products_with_weights_in_other_forms_are_units(name: str, precision: Precision) -> None:
    function, inputs, kinds = REPEATED[name]
    units, others = placed_units.of_torch(
        Program(lambda _, *given: function(*given)), precision, *inputs
    )
    assert [unit.kind for unit in units] == kinds
    assert not [n for n in others if "matmul" in n]


WIDE: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "a large norm": (
        lambda x: functional.normalize(x @ WEIGHT, dim=-1) @ WEIGHT, random(2, 5, 32) * 300
    ),
    "a small norm": (
        lambda x: functional.normalize(x @ WEIGHT, dim=-1) @ WEIGHT, random(2, 5, 32) * 1e-4
    ),
    "an exponential": (lambda x: functional.softplus(x + 15.0) @ WEIGHT, random(2, 5, 32)),
    "a group norm": (
        lambda x: functional.group_norm(CONV(x), 4), random(2, 16, 5, 6)
    ),
    "several axes": (lambda x: functional.layer_norm(x @ WEIGHT, (5, 32)), random(2, 5, 32)),
    "no number": (lambda x: torch.nan_to_num(x @ WEIGHT), random(2, 5, 32)),
    "an assignment": (
        lambda x: torch.slice_scatter(x @ WEIGHT, torch.zeros(2, 5, 3), 2, 4, 7) @ WEIGHT,
        random(2, 5, 32),
    ),
    "a large factor": (lambda x: ((x @ WEIGHT) * 1e6).tanh(), random(2, 5, 32)),
    "an activation between": (lambda x: CONV(functional.elu(CONV(x))), random(1, 16, 5, 6)),
}  # fmt: skip


@pytest.mark.parametrize("precision", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("name", WIDE)
def test_half_precision_computes_wide_what_it_cannot_hold(name: str, precision: Precision) -> None:
    function, x = WIDE[name]
    block = Program(lambda _, given: function(given))
    made = placed_units.lowered_torch(block, precision, x)
    (found,) = placed_units.run(made, x.numpy())
    wanted = block(x).detach().numpy()
    error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
    assert error < (2e-2 if precision == FLOAT16 else 8e-2)


def test_slices_and_sums_of_unusual_forms_are_left_right() -> None:
    """A slice may begin before its tensor, and a constant may have more axes."""
    bias = random(1, 1, 1, 5)
    program = Program(lambda _, x, y: (x[:, -9:5] @ y, y.transpose(0, 1) + bias))
    placed_units.of_torch(program, FLOAT32, random(4, 8), random(5, 7))
    channels = Program(lambda _, x: CONV(functional.pad(CONV(x)[:, -100:], (0, 0))))
    units, _ = placed_units.of_torch(channels, FLOAT32, random(1, 16, 5, 6))
    assert [unit.kind for unit in units] == ["conv2d", "conv2d"]
