"""Reductions of torch that our own converters import, beside what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - gives numpy the name bfloat16
import pytest
import torch

from tvmscope.compiler import in_memory
from tvmscope.compiler.frontends.torch.importer import decomposed, translate
from tvmscope.core.options import CompileOptions
from tvmscope.models import flat


class Wrapped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.amax(x, 1),
            torch.amin(x, (0, 2), keepdim=True),
            *torch.min(x, 2),
            torch.logsumexp(x, 1),
            torch.prod(x, 1),
            (x > 2).any(),
            (x > 9).any(),
            *torch.var_mean(x, (1, 2), correction=0),
            *torch.var_mean(x, 1, keepdim=True),
            *torch.var_mean(x),
        )


def run(module: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    imported = translate(decomposed(torch.export.export(module, (x,))), "reductions")
    compiled = in_memory.compile_here(imported, CompileOptions())
    return [torch.from_numpy(array) for array in compiled([x.numpy()])]


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_reductions_are_those_of_pytorch(offset: float) -> None:
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)) + offset
    module = Wrapped().eval()
    for found, wanted in zip(run(module, x), module(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


class Extremes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.amax(x, 1), torch.amin(x, (0, 2), keepdim=True), x.max()


def test_the_extreme_of_infinities_alone_is_the_infinity() -> None:
    """A mask's rows without any open place are found this way."""
    x = torch.full((2, 3, 40), -torch.inf)
    for found, wanted in zip(run(Extremes(), x), Extremes()(x), strict=True):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(run(Extremes(), -x), Extremes()(-x), strict=True):
        torch.testing.assert_close(found, wanted)


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ x.T, torch.softmax(x, 1), x.mean(1), x.sum(0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_narrow_model_is_summed_in_float32(dtype: torch.dtype) -> None:
    """Eleven bits, or eight, stop growing long before 4096 ones are added up."""
    x = torch.ones(2, 4096, dtype=dtype)
    imported = translate(decomposed(torch.export.export(Sums(), (x,))), "sums")
    compiled = in_memory.compile_here(imported, CompileOptions())
    given = flat.to_numpy(x).astype(str(dtype).removeprefix("torch."))
    for found, wanted in zip(compiled([given]), Sums()(x), strict=True):
        torch.testing.assert_close(torch.from_numpy(found.astype("float32")), wanted.float())
