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
    tolerance=1e-3,  # so many additions round differently in every order
)


def _blur(n: int) -> tirx.PrimFunc:
    """Make two passes of a three-point mean: first along rows, then along columns."""
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


def _scaled(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((3, n, n), "float32", name="A")
    b = te.placeholder((3, n, n), "float32", name="B")
    c = te.compute((3, n, n), lambda c, i, j: a[c, i, j] * b[c, i, j] + a[c, i, j], name="C")
    return te.create_prim_func([a, b, c])


SCALED = Workload(
    name="scaled",
    words=msg("C = A * B + A on three planes, such as the colours of a picture"),
    make=_scaled,
    reference=lambda inputs: inputs[0] * inputs[1] + inputs[0],
)


def _matvec(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((n, n), "float32", name="A")
    x = te.placeholder((n,), "float32", name="X")
    k = te.reduce_axis((0, n), name="k")
    y = te.compute((n,), lambda i: te.sum(a[k, i] * x[k], axis=k), name="Y")
    return te.create_prim_func([a, x, y])


MATVEC = Workload(
    name="matvec",
    words=msg("Y = A^T x X, a matrix times a vector"),
    make=_matvec,
    reference=lambda inputs: inputs[0].T @ inputs[1],
)


def _transpose(n: int) -> tirx.PrimFunc:
    from tvm import te

    a = te.placeholder((n, n), "float32", name="A")
    b = te.compute((n, n), lambda i, j: a[j, i], name="B")
    return te.create_prim_func([a, b])


def _padded_transpose(n: int) -> tirx.PrimFunc:
    """Transpose the same matrix in rows that are one cache line longer than needed."""
    from tvm import te

    a = te.placeholder((n, n + 16), "float32", name="A")
    b = te.compute((n, n), lambda i, j: a[j, i], name="B")
    return te.create_prim_func([a, b])


TRANSPOSE = Workload(
    name="transpose",
    words=msg("B = A transposed"),
    make=_transpose,
    reference=lambda inputs: inputs[0].T,
)
PADDED_TRANSPOSE = Workload(
    name="padded transpose",
    words=msg("B = A transposed, where each row of A is followed by 64 unused bytes"),
    make=_padded_transpose,
    reference=lambda inputs: inputs[0][:, : inputs[0].shape[0]].T,
)

CHANNELS = 64
BLOCK = 16
"""Channels of the convolutions, and how many are adjacent in the blocked layout."""


def _conv2d(n: int) -> tirx.PrimFunc:
    from tvm import te

    d = te.placeholder((CHANNELS, n + 2, n + 2), "float32", name="D")
    w = te.placeholder((CHANNELS, CHANNELS, 3, 3), "float32", name="W")
    ic = te.reduce_axis((0, CHANNELS), name="ic")
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    c = te.compute(
        (CHANNELS, n, n),
        lambda o, y, x: te.sum(d[ic, y + kh, x + kw] * w[o, ic, kh, kw], axis=[ic, kh, kw]),
        name="C",
    )
    return te.create_prim_func([d, w, c])


def convolved(inputs: Sequence[Array]) -> Array:
    """Compute a 3x3 convolution of padded planes."""
    data, weights = inputs
    windows = np.lib.stride_tricks.sliding_window_view(data, (3, 3), axis=(1, 2))
    found: Array = np.einsum("iyxhw,oihw->oyx", windows, weights, optimize=True)
    return found


CONV2D = Workload(
    name="conv2d",
    words=msg("a 3x3 convolution, 64 channels to 64, in NCHW: a plane for each channel"),
    make=_conv2d,
    reference=convolved,
)


def _conv2d_blocked(n: int) -> tirx.PrimFunc:
    from tvm import te

    blocks = CHANNELS // BLOCK
    d = te.placeholder((blocks, n + 2, n + 2, BLOCK), "float32", name="D")
    w = te.placeholder((blocks, blocks, 3, 3, BLOCK, BLOCK), "float32", name="W")
    ic, ii = te.reduce_axis((0, blocks), name="ic"), te.reduce_axis((0, BLOCK), name="ii")
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    c = te.compute(
        (blocks, n, n, BLOCK),
        lambda o, y, x, c: te.sum(
            d[ic, y + kh, x + kw, ii] * w[o, ic, kh, kw, ii, c], axis=[ic, kh, kw, ii]
        ),
        name="C",
    )
    return te.create_prim_func([d, w, c])


def _convolved_blocked(inputs: Sequence[Array]) -> Array:
    data, weights = inputs
    plain = data.transpose(0, 3, 1, 2).reshape(CHANNELS, *data.shape[1:3])
    kernel = weights.transpose(0, 5, 1, 4, 2, 3).reshape(CHANNELS, CHANNELS, 3, 3)
    found = convolved([plain, kernel])
    blocked: Array = found.reshape(-1, BLOCK, *found.shape[1:]).transpose(0, 2, 3, 1)
    return blocked


CONV2D_BLOCKED = Workload(
    name="conv2d in blocks",
    words=msg("the same in NCHW16c: 16 channels of a pixel lie beside each other"),
    make=_conv2d_blocked,
    reference=_convolved_blocked,
)
