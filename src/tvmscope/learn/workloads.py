"""The computations that lessons schedule, in TVM's expression language and in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tvmscope.learn.lesson import Array, Workload
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm import tirx


def _matmul(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((n, n), "float32", name="A")
    b = te.placeholder((n, n), "float32", name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def _product(inputs: Sequence[Array]) -> Array:
    a, b = inputs
    return a @ b


MATMUL = Workload(
    name="matmul",
    words=msg("C = A x B, square matrices of float32"),
    make=_matmul,
    reference=_product,
)


def _add(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((n, n), "float32", name="A")
    b = te.placeholder((n, n), "float32", name="B")
    c = te.compute((n, n), lambda i, j: a[i, j] + b[i, j], name="C")
    return te.create_prim_func([a, b, c])


ADD = Workload(
    name="add",
    words=msg("C = A + B, element by element"),
    make=_add,
    reference=lambda inputs: inputs[0] + inputs[1],
)


def _total(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((16, n * 64), "float32", name="A")
    k = te.reduce_axis((0, n * 64), name="k")
    s = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="S")
    return te.create_prim_func([a, s])


ROW_SUMS = Workload(
    name="row sums",
    words=msg("S = the sums of 16 long rows"),
    make=_total,
    reference=lambda inputs: inputs[0].astype(np.float64).sum(axis=1).astype(np.float32),
    tolerance=1e-3,  # as many additions as this round differently in every order
)


def _blur(n: int) -> tirx.PrimFunc:
    """Two passes of a three-point mean: first along rows, then along columns."""
    from tvm import te

    a = te.placeholder((n + 2, n + 2), "float32", name="A")
    b = te.compute((n + 2, n), lambda i, j: (a[i, j] + a[i, j + 1] + a[i, j + 2]) * 0.25, name="B")
    c = te.compute((n, n), lambda i, j: (b[i, j] + b[i + 1, j] + b[i + 2, j]) * 0.25, name="C")
    return te.create_prim_func([a, c])


def _blurred(inputs: Sequence[Array]) -> Array:
    (a,) = inputs
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) * np.float32(0.25)
    found: Array = (rows[:-2] + rows[1:-1] + rows[2:]) * np.float32(0.25)
    return found


BLUR = Workload(
    name="blur",
    words=msg("C = A, each element the mean of its neighbours: rows first, then columns"),
    make=_blur,
    reference=_blurred,
)
