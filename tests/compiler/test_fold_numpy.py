"""Constant folding with numpy: the same constants as the compiler's, and what is left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import FloatImm

from support.graph_passes import Build, check, const, module, tidy
from tvmscope.compiler.graph.arithmetic import TABLE
from tvmscope.compiler.rewrites.fold_numpy import MOST_ELEMENTS_GROWN, fold_numpy

op = relax.op
X = np.linspace(0.5, 4, 15, dtype=np.float32).reshape(3, 5)
Y = X[::-1].copy()
"""Equal to X in the middle row only, larger above it and smaller below."""
WITH_NAN = np.where(X > 2, np.float32(np.nan), X)
FOLDED: dict[str, Build] = {
    "relax.add": lambda: op.add(const(X), const(X[0])),
    "relax.subtract": lambda: op.subtract(const(X), FloatImm("float32", 0.25)),
    "relax.multiply": lambda: op.multiply(const(X), const(3.0)),
    "relax.divide": lambda: op.divide(const(X), const(X[0])),
    "relax.sqrt": lambda: op.sqrt(const(X)),
    "relax.rsqrt": lambda: op.rsqrt(const(X)),
    "relax.negative": lambda: op.negative(const(X)),
    "relax.abs": lambda: op.abs(const(X - 2)),
    "relax.maximum": lambda: op.maximum(const(X), const(Y)),
    "relax.minimum": lambda: op.minimum(const(X), const(Y[0])),
    "relax.matmul": lambda: op.matmul(const(X), const(Y.T)),
    "relax.isnan": lambda: op.isnan(const(WITH_NAN)),
    "relax.where": lambda: op.where(const(X > 2, "bool"), const(X), const(Y[0])),
    "relax.equal": lambda: op.equal(const(X), const(Y)),
    "relax.not_equal": lambda: op.not_equal(const(X), const(Y)),
    "relax.less": lambda: op.less(const(X), const(Y)),
    "relax.less_equal": lambda: op.less_equal(const(X), const(Y)),
    "relax.greater": lambda: op.greater(const(X), const(Y)),
    "relax.greater_equal": lambda: op.greater_equal(const(X), const(Y)),
    "relax.logical_and": lambda: op.logical_and(const(X > 1, "bool"), const(Y > 1, "bool")),
    "relax.logical_or": lambda: op.logical_or(const(X > 3, "bool"), const(Y > 3, "bool")),
    "relax.logical_not": lambda: op.logical_not(const(X > 2, "bool")),
    "relax.bitwise_and": lambda: op.bitwise_and(const(X > 1, "bool"), const(Y > 1, "bool")),
    "relax.bitwise_or": lambda: op.bitwise_or(const([6, 1], "int32"), const([3, 8], "int32")),
    "relax.bitwise_xor": lambda: op.bitwise_xor(const([6, 1], "int32"), const([3, 8], "int32")),
    "relax.bitwise_not": lambda: op.bitwise_not(const([6, -1], "int32")),
    "relax.take": lambda: op.take(const(X), const([4, 0, 2], "int64"), axis=1),
    "relax.tril": lambda: op.tril(const(X), 1),
    "relax.triu": lambda: op.triu(const(X), -1),
    "relax.shape_to_tensor": lambda: op.shape_to_tensor(relax.ShapeExpr([3, 5])),
    "relax.strided_slice": lambda: op.strided_slice(const(X), [1, 0], [4, 1], [0, 3], [-2, 1]),
    "relax.concat": lambda: op.concat([const(X), const(Y[:1])], axis=0),
    "relax.stack": lambda: op.stack([const(X), const(Y)], axis=1),
    "relax.arange": lambda: op.arange(2, 11, 3, "int64"),
    "relax.full": lambda: op.full((), const(2.5), "float32"),
    "relax.flatten": lambda: op.flatten(const(X)),
    "relax.reshape": lambda: op.reshape(const(X), (5, 1, 3)),
    "relax.expand_dims": lambda: op.expand_dims(const(X), [0, 2]),
    "relax.squeeze": lambda: op.squeeze(const(X[None]), [0]),
    "relax.permute_dims": lambda: op.permute_dims(const(X)),
    "relax.broadcast_to": lambda: op.broadcast_to(const(X), (2, 3, 5)),
    "relax.astype": lambda: op.astype(const(X), "float16"),
}


def folded(mod: tvm.IRModule) -> np.ndarray[Any, Any]:
    """The constant that is left of a function."""
    result = tidy(mod)["main"].body.body
    assert isinstance(result, GenericConst)
    return result.value.numpy()


def test_every_operator_of_the_table_is_tested() -> None:
    assert {*FOLDED, "relax.cumsum"} == set(TABLE)


@pytest.mark.parametrize(
    ("axis", "exclusive", "wanted"),
    [(1, False, [[1, 3, 6], [4, 9, 15]]), (0, True, [[0, 0, 0], [1, 2, 3]]),
     (None, False, [1, 3, 6, 10, 15, 21])],
)  # fmt: skip
def test_cumulative_sums_which_the_compiler_leaves(
    axis: int | None, exclusive: bool, wanted: list[Any]
) -> None:
    data = const([[1, 2, 3], [4, 5, 6]], "int64")
    ours = fold_numpy()(module(lambda: op.cumsum(data, axis=axis, exclusive=exclusive)))
    assert folded(ours).tolist() == wanted


@pytest.mark.parametrize("name", FOLDED)
def test_numpy_folds_as_the_compiler_does(name: str) -> None:
    # Two modules: ours changes the one that it is given.
    ours = folded(fold_numpy()(module(FOLDED[name])))
    kernels = relax.transform.LegalizeOps()(module(FOLDED[name]))
    theirs = folded(relax.transform.FoldConstant()(kernels))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=2e-7)


@pytest.mark.parametrize("dtype", ["int64", "float64", "float16", "int8", "bool"])
def test_folding_keeps_the_type(dtype: str) -> None:
    ours = folded(fold_numpy()(module(lambda: op.reshape(const([[1, 0]], dtype), (2,)))))
    assert (ours.dtype, ours.tolist()) == (dtype, [1, 0])


def test_scalars_are_folded() -> None:
    ours = folded(fold_numpy()(module(lambda: op.astype(const(1.5), "float16"))))
    assert (ours.shape, ours.dtype, float(ours)) == ((), "float16", 1.5)


def test_a_chain_is_folded_up_to_what_is_computed() -> None:
    """What folding a batch norm leaves behind: w * gamma / sqrt(variance + epsilon)."""
    gamma, variance = X[0], X[1]

    def before(x: relax.Expr) -> relax.Expr:
        spread = op.sqrt(op.add(const(variance), const(1e-5)))
        scale = op.reshape(op.divide(const(gamma), spread), (5, 1, 1))
        return op.multiply(x, op.permute_dims(scale, [1, 2, 0]))

    scale = (gamma / np.sqrt(variance + np.float32(1e-5))).reshape(1, 1, 5)
    check(fold_numpy(), before, lambda x: op.multiply(x, const(scale)), torch.ones(2, 3, 5))


NOT_FOLDED: dict[str, Build] = {
    "integer division, where numpy gives floats": lambda x: op.divide(
        const([7], "int32"), const([2], "int32")
    ),
    "a result that would grow": lambda x: op.broadcast_to(const([1.0]), (2, MOST_ELEMENTS_GROWN)),
    "a computed operand": lambda x: op.add(x, const(1.0)),
    "an operator that is not in the table": lambda x: op.exp(const(X)),
    "many times one number": lambda x: op.full((2, 3), const(1.5), "float32"),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_the_rest_is_left_to_the_compiler(name: str) -> None:
    check(fold_numpy(), NOT_FOLDED[name], NOT_FOLDED[name], torch.ones(3))


def test_a_growing_result_is_not_even_computed() -> None:
    """Of 2^40 elements only the shape is looked at."""

    def huge() -> relax.Expr:
        return op.broadcast_to(const([1.0]), (1 << 20, 1 << 20))

    check(fold_numpy(), huge, huge)
