"""Numbers behind activations: parts of the weights behind them or of the bias in front of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tvm import relax

from support.graph_passes import Build, check, const
from tvmscope.compiler.rewrites.push_numbers import push_numbers

op = relax.op
WEIGHT = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
FILTER = np.linspace(-1.0, 1.0, 24).reshape(3, 2, 2, 2)
BIAS = const([1.0, 2.0, 3.0])
ROWS, IMAGE = torch.ones(6, 4), torch.ones(1, 2, 5, 4)
TWO, HALF = relax.const(2.0, "float32"), relax.const(0.5, "float32")
INF = float("inf")


def _emit(value: relax.Expr) -> relax.Var:
    return relax.BlockBuilder.current().emit(value)


def _linear(x: relax.Expr) -> relax.Expr:
    return op.add(op.matmul(x, const(WEIGHT)), BIAS)


def _shared(x: relax.Expr) -> relax.Expr:
    scaled = _emit(op.multiply(op.nn.silu(x), TWO))
    return op.add(op.matmul(scaled, const(WEIGHT)), op.matmul(scaled, const(WEIGHT)))


TAKEN: dict[str, tuple[Build, Build, torch.Tensor]] = {
    "factor": (
        lambda x: op.matmul(op.multiply(op.nn.silu(x), TWO), const(WEIGHT)),
        lambda x: op.matmul(op.nn.silu(x), const(2 * WEIGHT)),
        ROWS,
    ),
    "factor of an image": (
        lambda x: op.nn.conv2d(op.multiply(const(np.full((1, 2, 1, 1), 2.0)), x), const(FILTER)),
        lambda x: op.nn.conv2d(x, const(2 * FILTER)),
        IMAGE,
    ),
    "sum": (
        lambda x: op.add(op.nn.relu(_linear(x)), HALF),
        lambda x: op.clip(op.add(_linear(x), HALF), 0.5, INF),
        ROWS,
    ),
    "sum of a range": (
        lambda x: op.add(const([-1.0]), op.clip(op.matmul(x, const(WEIGHT)), 0.0, 6.0)),
        lambda x: op.clip(
            op.add(op.matmul(x, const(WEIGHT)), relax.const(-1.0, "float32")), -1.0, 5.0
        ),
        ROWS,
    ),
}
LEFT: dict[str, tuple[Build, torch.Tensor]] = {
    "two readers": (_shared, ROWS),
    "zero": (
        lambda x: op.matmul(op.multiply(x, relax.const(0.0, "float32")), const(WEIGHT)), ROWS
    ),
    "channels": (
        lambda x: op.matmul(op.multiply(x, const([1.0, 2.0, 3.0, 4.0])), const(WEIGHT)), ROWS
    ),
    "a sum of channels": (lambda x: op.add(op.nn.relu(_linear(x)), BIAS), ROWS),
    "no bias in front": (lambda x: op.add(op.nn.relu(x), HALF), ROWS),
    "no limit": (lambda x: op.add(op.nn.silu(_linear(x)), HALF), ROWS),
    "infinite": (
        lambda x: op.add(op.nn.relu(_linear(x)), relax.const(INF, "float32")), ROWS
    ),
    "too small": (
        lambda x: op.matmul(op.multiply(x, relax.const(1e-5, "float32")), const(WEIGHT)), ROWS
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_numbers_that_move(name: str) -> None:
    before, after, x = TAKEN[name]
    check(push_numbers(half=True), before, after, x)


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str) -> None:
    graph, x = LEFT[name]
    check(push_numbers(half=True), graph, graph, x)
