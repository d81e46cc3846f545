"""The polynomials that replace transcendental functions: how far off they may be, and where."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, te

from support.graph_passes import tidy
from support.paired_graph import Graph
from tvmscope.compiler import in_memory, targets
from tvmscope.compiler.frontends.torch import importer
from tvmscope.compiler.kernels import polynomials
from tvmscope.compiler.rewrites.cpu.fast_math import fast_math
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Array = np.ndarray[Any, Any]
_erf = np.vectorize(math.erf)


def sigmoid(x: Array) -> Array:
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


REFERENCES: dict[str, tuple[Callable[..., relax.Expr], Callable[[Array], Array]]] = {
    "erf": (relax.op.erf, _erf),
    "tanh": (relax.op.tanh, np.tanh),
    "sigmoid": (relax.op.sigmoid, sigmoid),
    "gelu": (relax.op.nn.gelu, lambda x: x * (1 + _erf(x * 0.5**0.5)) / 2),
    "gelu_tanh": (relax.op.nn.gelu_tanh, gelu_tanh),
    "silu": (relax.op.nn.silu, lambda x: x * sigmoid(x)),
}
WIDE = np.concatenate(
    [np.linspace(-1, 1, 5001), np.linspace(-12, 12, 20001), np.linspace(-120, 120, 5001),
     [1e9, -1e9, 1e30, -1e30, 3e38, -3e38, 1e-30, -1e-30, 0.0]]
).astype(np.float32)  # fmt: skip


def run(op: Callable[..., relax.Expr], x: Array, target: Target) -> Array:
    graph = Graph()
    node = graph.apply(op, lambda v: v, graph.input_of(torch.from_numpy(x)))
    ran = graph.run(node, target=target)
    assert set(ran.rules.values()) == {"fallback"}
    return ran.outputs[0].astype(np.float64)


@pytest.mark.parametrize("name", REFERENCES)
def test_error_is_below_one_in_a_million(name: str, host: Target) -> None:
    """|error| < 4e-7 * max(1, |x|), measured against float64: 3.4 units in the last place."""
    op, reference = REFERENCES[name]
    expected = reference(WIDE.astype(np.float64))
    error = np.abs(run(op, WIDE, host) - expected) / np.maximum(1, np.abs(WIDE))
    assert error.max() < 4e-7


def test_relative_error_of_exp_is_below_one_in_a_million(host: Target) -> None:
    """Over all results that float32 holds at full precision."""
    x = np.linspace(-87, 88, 40001).astype(np.float32)
    expected = np.exp(x.astype(np.float64))
    assert (np.abs(run(relax.op.exp, x, host) - expected) / expected).max() < 1e-6


def test_log_is_right_to_two_units_in_the_last_place(host: Target) -> None:
    """Of all sizes, denormal numbers among them, and near 1, where its relative error counts."""
    x = np.concatenate([np.geomspace(1e-44, 3e38, 40001), np.linspace(0.5, 2, 40001)])
    x = x.astype(np.float32)
    expected = np.log(x.astype(np.float64))
    unit = np.spacing(np.abs(expected).astype(np.float32))
    assert (np.abs(run(relax.op.log, x, host) - expected) / unit).max() < 2
    assert not run(relax.op.log, np.ones(3, np.float32), host).any()


def test_log_of_what_has_none_is_as_in_pytorch(host: Target) -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, -1e-45, 3e38], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(run(relax.op.log, x, host), np.log(x), rtol=1e-7)


@pytest.mark.parametrize("name", ["exp", *REFERENCES])
def test_not_a_number_stays_so_and_infinity_has_its_limit(name: str, host: Target) -> None:
    op = REFERENCES[name][0] if name in REFERENCES else relax.op.exp
    below, above, nothing = run(op, np.array([-np.inf, np.inf, np.nan], np.float32), host)
    limits = {"exp": (0, np.inf), "erf": (-1, 1), "tanh": (-1, 1), "sigmoid": (0, 1)}
    if name in limits:
        assert (below, above) == limits[name]
    else:
        assert above == np.inf  # PyTorch too gives NaN for gelu and silu of -inf
    assert np.isnan(nothing)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("mask", [-1e4, -1e9, -3.4e38, -np.inf])
def test_masked_softmax_matches_pytorch(mask: float, axis: int, host: Target) -> None:
    graph = Graph()
    x = graph.random(13, 31) * 30
    x[3:7, 5:] = mask
    x[2:, 1] = mask
    node = graph.apply(
        lambda v: relax.op.nn.softmax(v, axis), lambda v: v.softmax(axis), graph.input_of(x)
    )
    ran = graph.check(node, target=host)
    assert (ran.outputs[0][x.numpy() == mask] == 0).all()


def test_fully_masked_row_is_even_or_not_a_number_as_in_pytorch(host: Target) -> None:
    x = torch.randn(3, 17)
    x[1], x[2] = -1e9, -np.inf
    graph = Graph()
    node = graph.apply(
        lambda v: relax.op.nn.softmax(v, -1), lambda v: v.softmax(-1), graph.input_of(x)
    )
    (got,) = graph.run(node, target=host).outputs
    np.testing.assert_allclose(got, node.value.numpy(), rtol=1e-5, equal_nan=True)


def test_other_types_keep_the_exact_function() -> None:
    graph = Graph()
    x = graph.input_of(torch.randn(7).double())
    node = x
    for op in (*(op for op, _ in REFERENCES.values()), relax.op.log):
        node = graph.apply(op, lambda v: v, node)
    before = graph.module(node)
    tvm.ir.assert_structural_equal(fast_math()(before), before)


HAND_WRITTEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mish": torch.nn.functional.mish,
    "mish by hand": lambda x: x * torch.tanh(torch.log(1 + torch.exp(x))),
    "softplus": torch.nn.functional.softplus,
    "softplus by hand": lambda x: torch.relu(x) + torch.log1p(torch.exp(-x.abs())),
}


@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_activations_of_several_operators_are_one_formula(name: str) -> None:
    function = HAND_WRITTEN[name]

    class Block(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    x = torch.from_numpy(WIDE[np.abs(WIDE) < (80 if "hand" in name else 1e38)])
    imported = importer.translate(importer.decomposed(torch.export.export(Block(), (x,))), name)
    (found,) = in_memory.compile_here(imported, CompileOptions())([x.numpy()])
    kind = name.split()[0]
    wanted = HAND_WRITTEN[kind](x.double()).numpy()
    assert (np.abs(found - wanted) / np.maximum(1, np.abs(wanted))).max() < 4e-7
    small = ((x > -60) & (x < -5)).numpy()  # where the result is small, its own digits count
    assert (np.abs(found - wanted)[small] <= 1e-5 * np.abs(wanted[small])).all()
    kernels = [v.name_hint for v, f in fast_math()(tidy(imported.module)).functions_items()]
    assert any(kind in kernel for kernel in kernels)


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_functions_inside_loops_are_as_exact(name: str, host: Target) -> None:
    """Those of recurrent layers, which have no kernel of their own."""
    x = np.concatenate([WIDE, [np.nan, np.inf, -np.inf]]).astype(np.float32)
    given = te.placeholder(x.shape, "float32", "x")
    function = getattr(polynomials, name)
    found = te.compute(x.shape, lambda i: function(given(i)), name="found")
    code = tvm.compile(te.create_prim_func([given, found]), tvm.target.Target(targets.to_tvm(host)))
    out = tvm.runtime.tensor(np.empty_like(x))
    code["main"](tvm.runtime.tensor(x), out)
    with np.errstate(over="ignore"):
        wanted = getattr(np, name)(np.clip(x.astype(np.float64), -87, 88))
    error = np.abs(out.numpy() - wanted) / np.maximum(wanted if name == "exp" else 1, 1e-37)
    assert np.isnan(out.numpy()[-3])
    inside = (x > -87) & (x < 88)
    assert error[inside].max() < (1e-6 if name == "exp" else 4e-7)
    assert not np.isnan(out.numpy()[-2:]).any()
