"""Reductions that TVM's torch importer lacks, or computes by a sort; each takes `emit` and the
operator's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax

op = relax.op
Emit = Callable[[relax.Expr], relax.Expr]


def _axes(data: relax.Expr, dim: int | Sequence[int] | None) -> list[int]:
    """Return the named axes; none means all."""
    rank = len(data.ty.shape)
    named = [dim] if isinstance(dim, int) else list(dim or ())
    return [axis % rank for axis in named] or list(range(rank))


def amax(emit: Emit, data: relax.Expr, dim: Any = (), keepdim: bool = False) -> relax.Expr:
    return emit(op.max(data, _axes(data, dim), keepdims=keepdim))


def amin(emit: Emit, data: relax.Expr, dim: Any = (), keepdim: bool = False) -> relax.Expr:
    return emit(op.min(data, _axes(data, dim), keepdims=keepdim))


def min_dim(emit: Emit, data: relax.Expr, dim: int, keepdim: bool = False) -> relax.Expr:
    """Return the smallest elements, and the index of the first of each."""
    values = emit(op.min(data, [dim], keepdims=keepdim))
    places = emit(op.argmin(data, dim, keepdims=keepdim))
    return emit(relax.Tuple([values, places]))


def max_dim(emit: Emit, data: relax.Expr, dim: int, keepdim: bool = False) -> relax.Expr:
    """Return the largest elements, and the index of the first of each."""
    values = emit(op.max(data, [dim], keepdims=keepdim))
    places = emit(op.argmax(data, dim, keepdims=keepdim))
    return emit(relax.Tuple([values, places]))


def prod_dim(emit: Emit, data: relax.Expr, dim: int, keepdim: bool = False) -> relax.Expr:
    return emit(op.prod(data, [dim], keepdims=keepdim))


def any_of_all(emit: Emit, data: relax.Expr) -> relax.Expr:
    """Compute any() with int8: TVM has no maximum of booleans."""
    zero = relax.const(np.zeros((), str(data.ty.dtype)), str(data.ty.dtype))
    found = data if str(data.ty.dtype) == "bool" else emit(op.not_equal(data, zero))
    return emit(op.astype(emit(op.max(emit(op.astype(found, "int8")))), "bool"))


def var_mean(
    emit: Emit,
    data: relax.Expr,
    dim: Any = None,
    *,
    correction: float | None = 1,
    keepdim: bool = False,
) -> relax.Expr:
    """Return the variance around the mean, divided by `correction` less elements, and the mean."""
    axes = _axes(data, dim)
    count = prod(int(data.ty.shape[axis]) for axis in axes)
    mean = emit(op.mean(data, axes, keepdims=True))
    around = emit(op.subtract(data, mean))
    total = emit(op.sum(emit(op.multiply(around, around)), axes, keepdims=keepdim))
    less = 1.0 if correction is None else float(correction)
    number = relax.const(np.asarray(max(count - less, 0.0), str(data.ty.dtype)))
    variance = emit(op.divide(total, number))
    held = mean if keepdim else emit(op.squeeze(mean, axes))
    return emit(relax.Tuple([variance, held]))


REDUCTIONS: dict[str, Callable[..., relax.Expr]] = {
    "amax.default": amax,
    "amin.default": amin,
    "any.default": any_of_all,
    "max.dim": max_dim,
    "min.dim": min_dim,
    "prod.dim_int": prod_dim,
    "var_mean.correction": var_mean,
}
"""Reductions by the operator's name in an exported program."""
