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
    batch, wider = _some(rng, 1, 1, 2, 3), int(rng.integers(0, 5))
    return convolution(
        (batch, side, side + wider, _some(rng, 3, 7, 8, 16, 20, 33, 64, 100)),
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


def _elements(rng: np.random.Generator) -> tirx.PrimFunc:
    """A transpose, a sum and a concatenation with what is beside it."""
    a, b, c = _some(rng, 1, 2, 3), _some(rng, 5, 8, 33), _some(rng, 7, 16, 40, 64)
    x = te.placeholder((a, c, b), "float32", name="x")
    y = te.placeholder((a, b, c), "float16", name="y")
    moved = topi.cast(topi.transpose(x, (0, 2, 1)), "float16")
    if rng.integers(0, 2):
        return te.create_prim_func([x, y, topi.nn.leaky_relu(topi.add(moved, y), 0.1)])
    return te.create_prim_func([x, y, topi.concatenate([y, moved], int(rng.integers(1, 3)))])


def _window(rng: np.random.Generator) -> tirx.PrimFunc:
    size = (_some(rng, 1, 2), _some(rng, 9, 14), _some(rng, 8, 13), _some(rng, 8, 24, 40, 64))
    x = te.placeholder(size, "float16", name="x")
    return te.create_prim_func([x, topi.nn.pool2d(
        x, (3, 2), (_some(rng, 1, 2), 2), (1, 1), (1, 0, 0, 1),
        "max" if rng.integers(0, 2) else "avg", layout="NHWC",
    )])  # fmt: skip


def _rows(rng: np.random.Generator) -> tirx.PrimFunc:
    shape = (_some(rng, 1, 3, 12), _some(rng, 1, 7, 64), _some(rng, 17, 128, 197, 1500))
    x = te.placeholder(shape, "float32", name="x")
    if rng.integers(0, 2):
        return te.create_prim_func([x, topi.nn.softmax(x, -1)])
    return te.create_prim_func([x, topi.max(topi.abs(x), -1, keepdims=True)])


def hard_swish(*shape: int, scale: bool = False) -> tirx.PrimFunc:
    """Half precision in memory, single in between, with numbers, and a value for all of a row."""
    x = te.placeholder(shape, "float16", name="x")
    given = [x]
    y = topi.cast(x, "float32")
    if scale:
        given.append(te.placeholder((*shape[:-1], 1), "float16", name="scale"))
        y = topi.multiply(y, topi.cast(given[-1], "float32"))
    y = topi.multiply(y, topi.clip(topi.add(y, 3.0), 0.0, 6.0))
    return te.create_prim_func([*given, topi.cast(topi.divide(y, 6.0), "float16")])


KINDS: dict[str, Callable[[np.random.Generator], tirx.PrimFunc]] = {
    "convolution": _convolution,
    "product": _product,
    "elements": _elements,
    "window": _window,
    "rows": _rows,
}
