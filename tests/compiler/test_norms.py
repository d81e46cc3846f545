"""Norms keep their digits where the mean is large beside the spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tvm import relax

from support.graph_passes import check, const, module
from tvmscope.compiler import in_memory
from tvmscope.compiler.describe.sources import Imported
from tvmscope.compiler.rewrites.cpu.norm_rows import norm_rows
from tvmscope.core.options import CompileOptions

Array = np.ndarray[Any, Any]
op = relax.op
GAIN = np.linspace(0.5, 2, 6).astype(np.float32)
BIAS = np.linspace(-1, 1, 6).astype(np.float32)
WHOLE = np.linspace(0.5, 2, 6 * 5 * 7).astype(np.float32).reshape(6, 5, 7)


def normalised(x: Array, axes: tuple[int, ...]) -> Array:
    around = x - x.mean(axes, keepdims=True)
    return np.asarray(around / np.sqrt((around**2).mean(axes, keepdims=True) + 1e-5))


def by_channel(x: Array) -> Array:
    return np.asarray(x * GAIN[:, None, None] + BIAS[:, None, None])


NORMS: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array], Array]]] = {
    "group": (
        lambda x: op.nn.group_norm(x, const(GAIN), const(BIAS), 2, 1, [2, 3], 1e-5),
        lambda x: by_channel(normalised(x.reshape(2, 2, -1), (2,)).reshape(x.shape)),
    ),
    "instance": (
        lambda x: op.nn.instance_norm(x, const(GAIN), const(BIAS), 1, [2, 3], 1e-5),
        lambda x: by_channel(normalised(x, (2, 3))),
    ),
    "layer": (
        lambda x: op.nn.layer_norm(x, const(WHOLE), const(WHOLE), [-3, -2, -1], 1e-5),
        lambda x: normalised(x, (1, 2, 3)) * WHOLE + WHOLE,
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_large_mean_costs_no_digits(name: str) -> None:
    build, exact = NORMS[name]
    spread = np.random.default_rng(0).random((2, 6, 5, 7)) * 0.25
    x = (100 + spread).astype(np.float32)
    imported = Imported(module(build, torch.ones(2, 6, 5, 7)), ())
    (found,) = in_memory.compile_here(imported, CompileOptions())([x])
    # what a rounding of the mean by half a unit in its last place makes of the result
    noise = 100 * 2**-24 / x.std() * 2
    assert np.abs(found - exact(x.astype(np.float64))).max() < 8 * noise


STAYING: dict[str, tuple[Callable[..., relax.Expr], torch.Tensor]] = {
    "half precision": (
        lambda x: op.nn.group_norm(
            x, const(GAIN, "float16"), const(BIAS, "float16"), 2, 1, [2, 3], 1e-5
        ),
        torch.ones(2, 6, 5, 7).half(),
    ),
    "statistics over the batch": (
        lambda x: op.nn.instance_norm(x, const(GAIN), const(BIAS), 1, [0, 2, 3], 1e-5),
        torch.ones(2, 6, 5, 7),
    ),
    "rows already": (
        lambda x: op.nn.layer_norm(x, const(np.ones(7)), const(np.ones(7)), [-1], 1e-5),
        torch.ones(2, 6, 5, 7),
    ),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_is_no_row_of_float32_stays(name: str) -> None:
    build, x = STAYING[name]
    check(norm_rows(), build, build, x)
