"""Functions of odd shapes for the CUDA schedule rules, as fusion would leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import te, tirx, topi

Function = tuple[str, tirx.PrimFunc]


def convolution(
    size: tuple[int, int, int, int],
    outputs: int,
    kernel: tuple[int, int] = (3, 3),
    *,
    stride: int = 1,
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: int = 1,
    residual: bool = False,
    dtype: str = "float16",
) -> tirx.PrimFunc:
    """NHWC convolution with bias, residual and ReLU; `padding` is top, left, bottom, right."""
    x = te.placeholder(size, dtype, name="x")
    w = te.placeholder((outputs, *kernel, size[-1]), dtype, name="w")
    bias = te.placeholder((1, 1, 1, outputs), dtype, name="bias")
    y = topi.nn.conv2d(
        x, w, stride, padding, dilation, data_layout="NHWC", kernel_layout="OHWI", out_dtype=dtype
    )
    given = [x, w, bias]
    z = topi.add(y, bias)
    if residual:
        given.append(te.placeholder([int(d) for d in y.shape], dtype, name="residual"))
        z = topi.add(z, given[-1])
    return te.create_prim_func([*given, topi.nn.relu(z)])


def product(
    rows: int,
    columns: int,
    terms: int,
    *,
    batch: int | None = None,
    transposed: bool = False,
    dtype: str = "float16",
    out: str = "float16",
    bias: bool = False,
) -> tirx.PrimFunc:
    """A matrix product, perhaps of many matrices, with the second one transposed."""
    lead = () if batch is None else (batch,)
    a = te.placeholder((*lead, rows, terms), dtype, name="a")
    b = te.placeholder(
        (*lead, columns, terms) if transposed else (*lead, terms, columns), dtype, name="b"
    )
    k = te.reduce_axis((0, terms), name="k")

    def value(*at: Any) -> Any:
        *b0, i, j = at
        left, right = a[(*b0, i, k)], b[(*b0, j, k) if transposed else (*b0, k, j)]
        if out != dtype:
            left, right = left.astype(out), right.astype(out)
        return te.sum(left * right, axis=k)

    c = te.compute((*lead, rows, columns), value, name="c")
    if not bias:
        return te.create_prim_func([a, b, c])
    d = te.placeholder((columns,), dtype, name="d")
    return te.create_prim_func([a, b, d, topi.nn.relu(topi.add(c, d))])


def drawn(count: int) -> Iterator[Function]:
    """So many functions of every kind."""
    rng = np.random.default_rng(0)
    for kind, make in KINDS.items():
        for number in range(count // len(KINDS)):
            yield f"{kind} {number}", make(rng)


def _some(rng: np.random.Generator, *values: int) -> int:
    return int(rng.choice(values))


def _convolution(rng: np.random.Generator) -> tirx.PrimFunc:
    kernel = (_some(rng, 1, 2, 3, 5), _some(rng, 1, 3, 4))
    dilation = _some(rng, 1, 1, 2)
    side = int(rng.integers(9, 30))
    padding = [int(p) for p in rng.integers(0, 3, 4)]
    return convolution(
        (_some(rng, 1, 1, 2, 3), side, side + int(rng.integers(0, 5)), _some(rng, 3, 7, 8, 16, 20, 33, 64, 100)),
        _some(rng, 8, 17, 24, 33, 64, 70, 130),
        kernel,
        stride=_some(rng, 1, 1, 2, 3),
        padding=(padding[0], padding[1], padding[2], padding[3]),
        dilation=dilation,
        residual=bool(rng.integers(0, 2)),
    )  # fmt: skip


def _product(rng: np.random.Generator) -> tirx.PrimFunc:
    return product(
        _some(rng, 1, 2, 13, 49, 64, 197, 300),
        _some(rng, 8, 10, 33, 64, 197, 1000),
        _some(rng, 16, 31, 64, 197, 513, 2048),
        batch=_some(rng, 1, 3, 12) if rng.integers(0, 2) else None,
        transposed=bool(rng.integers(0, 2)),
        out="float32" if rng.integers(0, 3) == 0 else "float16",
    )


KINDS: dict[str, Callable[[np.random.Generator], tirx.PrimFunc]] = {
    "convolution": _convolution,
    "product": _product,
}
