"""Factors per channel: multiplied into weights where nobody else reads the product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tvm import relax

from support.graph_passes import Build, check, const
from tvmscope.compiler.rewrites.fold_scales import fold_scales

op = relax.op
WEIGHT = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
FILTER = np.linspace(-1.0, 1.0, 24).reshape(3, 2, 2, 2)
SCALE = np.array([0.5, 2.0, -1.0])
SQUARE = np.array([[1.0, -2.0], [0.5, 3.0]]).reshape(2, 2, 1, 1)
NUMBER = relax.const(0.25, "float32")
PLANES = SCALE.reshape(3, 1, 1)


def _emit(value: relax.Expr) -> relax.Var:
    return relax.BlockBuilder.current().emit(value)


def _linear(x: relax.Expr, factor: np.ndarray | float = 1.0) -> relax.Expr:
    return op.matmul(x, const(WEIGHT * factor))


def _convolution(x: relax.Expr, factor: np.ndarray | float = 1.0) -> relax.Expr:
    return op.nn.conv2d(x, const(FILTER * factor))


def _read_twice(x: relax.Expr) -> relax.Expr:
    made = _emit(_linear(x))
    return op.maximum(made, _emit(op.multiply(made, const(SCALE))))


ROWS, IMAGE = torch.ones(6, 4), torch.ones(1, 2, 5, 4)
TAKEN: dict[str, tuple[Build, Build, torch.Tensor]] = {
    "alone": (lambda x: op.multiply(_linear(x), const(SCALE)), lambda x: _linear(x, SCALE), ROWS),
    "left": (lambda x: op.multiply(const(SCALE), _linear(x)), lambda x: _linear(x, SCALE), ROWS),
    "moved": (
        lambda x: op.multiply(
            op.permute_dims(op.reshape(_linear(x), (1, 2, 3, 3)), (0, 3, 1, 2)), const(PLANES)
        ),
        lambda x: op.permute_dims(op.reshape(_linear(x, SCALE), (1, 2, 3, 3)), (0, 3, 1, 2)),
        ROWS,
    ),
    "a number before a sum": (
        lambda x: op.add(op.multiply(_linear(x), NUMBER), const(SCALE)),
        lambda x: op.add(_linear(x, 0.25), const(SCALE)),
        ROWS,
    ),
    "a number after limits": (
        lambda x: op.multiply(op.clip(op.nn.relu(_linear(x)), -0.5, 6.0), NUMBER),
        lambda x: op.clip(op.nn.relu(_linear(x, 0.25)), -0.125, 1.5),
        ROWS,
    ),
    "a number before a sum of images": (
        lambda x: op.add(x, op.multiply(op.nn.conv2d(x, const(SQUARE)), NUMBER)),
        lambda x: op.add(x, op.nn.conv2d(x, const(SQUARE * 0.25))),
        IMAGE,
    ),
    "convolution": (
        lambda x: op.multiply(op.add(_convolution(x), const(PLANES)), const(PLANES)),
        lambda x: op.add(_convolution(x, SCALE[:, None, None, None]), const(PLANES[None] ** 2)),
        IMAGE,
    ),
}
LEFT: dict[str, tuple[Build, torch.Tensor]] = {
    "read-twice": (_read_twice, ROWS),
    "a negative number after a limit": (
        lambda x: op.multiply(op.nn.relu(_linear(x)), relax.const(-1.0, "float32")),
        ROWS,
    ),
    "limits of channels": (
        lambda x: op.multiply(op.clip(_linear(x), 0.0, 6.0), const(SCALE)),
        ROWS,
    ),
    "a number alone": (lambda x: op.multiply(_linear(x), NUMBER), ROWS),
    "nonlinear": (lambda x: op.multiply(op.nn.relu(_linear(x)), const(SCALE)), ROWS),
    "rows": (lambda x: op.multiply(_linear(x), const(np.arange(1.0, 7.0)[:, None])), ROWS),
    "pixels": (lambda x: op.multiply(_convolution(x), const(np.arange(1.0, 4.0))), IMAGE),
    "split": (
        lambda x: op.multiply(op.reshape(_linear(x), (9, 2)), const([1.0, 2.0])), ROWS
    ),
    "no-weight": (lambda x: op.multiply(op.matmul(x, op.permute_dims(x)), const(np.arange(6.0))),
                  ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_weights_take_the_factor(name: str) -> None:
    before, after, x = TAKEN[name]
    check(fold_scales(half=True), before, after, x)


@pytest.mark.parametrize("name", LEFT)
def test_what_it_leaves(name: str) -> None:
    graph, x = LEFT[name]
    check(fold_scales(half=True), graph, graph, x)


def test_tiny_factors_stay_in_half_precision_only() -> None:
    def scaled(factor: float) -> Callable[[relax.Expr], relax.Expr]:
        return lambda x: op.multiply(_linear(x), const(SCALE * factor))

    check(fold_scales(half=True), scaled(1e-5), scaled(1e-5), ROWS)
    check(
        fold_scales(half=False), scaled(1e-5),
        lambda x: op.matmul(x, const(WEIGHT.astype("float32") * (SCALE * 1e-5).astype("float32"))),
        ROWS,
    )  # fmt: skip
