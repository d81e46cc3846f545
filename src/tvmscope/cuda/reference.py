"""Computes every unit in numpy with float64 sums: slow and simple, the reference of the tests.

`reference` takes the unit's tensors by role (weights unpacked, as in `unit.tensors`) and returns
the output as a new dense array: only the values, not the rest of a view's or matrix's buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from tvmscope.cuda.units import (
    Attention,
    Conv2d,
    Epilogue,
    GroupNorm,
    Matmul,
    Matrix,
    Norm,
    Pool,
    Softmax,
    Unit,
    View,
)
from tvmscope.errors import UsageError
from tvmscope.messages import msg

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = Mapping[str, Array]
erf = np.vectorize(math.erf, otypes=[np.float64])


def reference(unit: Unit, tensors: Tensors) -> Array:
    """Return the output in float64."""
    if isinstance(unit, Conv2d):
        return _conv2d(unit, tensors)
    if isinstance(unit, Matmul):
        return _matmul(unit, tensors)
    if isinstance(unit, Attention):
        return _attention(unit, tensors)
    if isinstance(unit, Softmax):
        values = tensors["input"].astype(np.float64) * unit.scale
        return _log_softmax(values) if unit.log else softmax(values)
    if isinstance(unit, Norm):
        return _norm(unit, tensors)
    if isinstance(unit, GroupNorm):
        return _group_norm(unit, tensors)
    if isinstance(unit, Pool):
        return _pool(unit, tensors)
    raise UsageError(msg("no reference for {kind}", kind=unit.kind))


def output_values(unit: Unit, buffer: Array) -> Array:
    """Return the part of an output buffer that the unit writes, in the reference's shape; a view,
    so that tests can check that the rest is untouched."""
    if isinstance(unit, Conv2d | Pool):
        channels = unit.oc if isinstance(unit, Conv2d) else unit.c
        return _slice(buffer, unit.output, channels)
    if isinstance(unit, Matmul):
        return _matrices(buffer, unit, unit.matrix_y, unit.m, unit.n)
    if isinstance(unit, Attention):
        return _heads(buffer, unit, "y")
    return buffer


def activate(x: Array, kind: str, parameters: tuple[float, ...] = ()) -> Array:
    """Apply an activation, as PyTorch defines it."""
    with np.errstate(over="ignore"):
        sigmoid, quick = (1 / (1 + np.exp(-slope * x)) for slope in (1.0, 1.702))
        below = np.where(x > 0, x, np.expm1(x))
    softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    forms: dict[str, Callable[[], Array]] = {
        "none": lambda: x,
        "relu": lambda: np.maximum(x, 0),
        "relu6": lambda: np.clip(x, 0, 6),
        "clip": lambda: np.clip(x, parameters[0], parameters[1]),
        "leaky_relu": lambda: np.where(x < 0, x * parameters[0], x),
        "sigmoid": lambda: sigmoid,
        "silu": lambda: x * sigmoid,
        "hardswish": lambda: x * np.clip(x + 3, 0, 6) / 6,
        "gelu": lambda: 0.5 * x * (1 + erf(x / math.sqrt(2))),
        "quick_gelu": lambda: x * quick,
        "gelu_tanh": lambda: 0.5 * x * (1 + np.tanh(inner)),
        "tanh": lambda: np.tanh(x),
        "elu": lambda: below,
        "selu": lambda: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * below),
        "softplus": lambda: softplus,
        "mish": lambda: x * np.tanh(softplus),
        "softsign": lambda: x / (1 + np.abs(x)),
        "relu_squared": lambda: np.maximum(x, 0) ** 2,
    }
    return np.asarray(forms[kind]())


def softmax(x: Array) -> Array:
    """Compute softmax over the last axis; a row of -inf gives zeros, like a kernel without keys."""
    top = np.max(x, axis=-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0.0))
    total = e.sum(axis=-1, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1.0, total))


def _log_softmax(x: Array) -> Array:
    top = np.max(x, axis=-1, keepdims=True)
    x = x - np.where(np.isfinite(top), top, 0.0)
    total = np.exp(x).sum(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.where(total == 0, 1.0, total)))


def _finish(x: Array, epilogue: Epilogue, tensors: Tensors, residual: Array | None) -> Array:
    if epilogue.bias:
        x = x + tensors["bias"].astype(np.float64)
    if epilogue.residual == "before" and residual is not None:
        x = x + residual
    x = activate(x, epilogue.activation, epilogue.parameters)
    if epilogue.residual == "after" and residual is not None:
        x = x + residual
    if epilogue.residual == "factor" and residual is not None:
        x = x * residual
    return x


def _conv2d(unit: Conv2d, tensors: Tensors) -> Array:
    x = _slice(tensors["input"], unit.input, unit.c).astype(np.float64)
    if unit.gated:
        x = x * tensors["gate"].astype(np.float64).reshape(unit.n, 1, 1, unit.c)
    w = tensors["weight"].astype(np.float64)
    top, left, bottom, right = unit.padding
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    c, oc = unit.c // unit.groups, unit.oc // unit.groups
    out = np.zeros((unit.n, unit.p, unit.q, unit.oc))
    for i in range(unit.r):
        for j in range(unit.s):
            seen = _window(x, i * unit.dilation[0], j * unit.dilation[1], unit)
            for g in range(unit.groups):
                part = seen[..., g * c : (g + 1) * c]
                taps = w[g * oc : (g + 1) * oc, i, j]
                out[..., g * oc : (g + 1) * oc] += part @ taps.T
    residual = None
    if "residual" in tensors:
        residual = _slice(tensors["residual"], unit.residual, unit.oc).astype(np.float64)
    return _pooled(_finish(out, unit.epilogue, tensors, residual), unit)


def _pooled(x: Array, unit: Conv2d) -> Array:
    """Return the largest or mean values of a convolution's pool, if it has one."""
    if unit.pooled is None:
        return x
    (n, p, q), r, s = unit.stored, unit.pooled.r, unit.pooled.s
    windows = x[:, : p * r, : q * s].reshape(n, p, r, q, s, unit.oc)
    return np.asarray(windows.max((2, 4)) if unit.pooled.form == "max" else windows.mean((2, 4)))


def _window(x: Array, down: int, right: int, unit: Conv2d | Pool) -> Array:
    """Return the input of every output pixel at one position of its window."""
    rows = slice(down, down + (unit.p - 1) * unit.stride[0] + 1, unit.stride[0])
    columns = slice(right, right + (unit.q - 1) * unit.stride[1] + 1, unit.stride[1])
    return np.asarray(x[:, rows, columns])


def _matmul(unit: Matmul, tensors: Tensors) -> Array:
    a = _matrices(tensors["input"], unit, unit.matrix_a, unit.m, unit.k).astype(np.float64)
    if unit.weight:
        b = tensors["weight"].astype(np.float64)[None]
    else:
        side = unit.matrix_b("kn")
        b = _matrices(tensors["second"], unit, side, unit.k, unit.n).astype(np.float64)
    residual = None
    if "residual" in tensors:
        at = unit.matrix_z
        residual = _matrices(tensors["residual"], unit, at, unit.m, unit.n).astype(np.float64)
    return _finish(a @ b * unit.scale, unit.epilogue, tensors, residual)


def _attention(unit: Attention, tensors: Tensors) -> Array:
    q = _heads(tensors["query"], unit, "q")
    k = np.repeat(_heads(tensors["key"], unit, "k"), unit.shared, axis=1)
    v = np.repeat(_heads(tensors["value"], unit, "v"), unit.shared, axis=1)
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 1, 3, 2) * unit.scale
    if unit.mask is not None:
        mask = tensors["mask"]
        shape = (unit.batch, unit.heads, unit.queries, unit.keys)
        steps = tuple(s * mask.itemsize for s in (*unit.mask, 1))
        batches = unit.mask_batches or unit.batch
        own = np.lib.stride_tricks.as_strided(mask, (batches, *shape[1:]), steps)
        scores = scores + np.tile(own.astype(np.float64), (unit.batch // batches, 1, 1, 1))
    if unit.causal:
        late = np.arange(unit.keys)[None, :] - np.arange(unit.queries)[:, None]
        scores = np.where(late > unit.keys - unit.queries, -np.inf, scores)
    return np.asarray(softmax(scores) @ v.astype(np.float64))


def norm_sum(unit: Norm, tensors: Tensors) -> Array:
    """Return the input that is normalised: with its residual."""
    x = tensors["input"]
    if unit.x is not None:
        shape = (unit.rows // math.prod(unit.x.sizes), *unit.x.sizes, unit.columns)
        steps = tuple(s * x.itemsize for s in (*unit.x.steps, 1))
        start = x.reshape(-1)[unit.x.offset :]
        x = np.lib.stride_tricks.as_strided(start, shape, steps)
    x = x.reshape(unit.rows, unit.columns).astype(np.float64)
    return np.asarray(x + tensors["residual"].astype(np.float64)) if unit.residual else x


def _norm(unit: Norm, tensors: Tensors) -> Array:
    x = norm_sum(unit, tensors)
    if unit.form == "layer":
        x = x - x.mean(axis=-1, keepdims=True)
    if unit.form == "length":
        x = x / np.maximum(np.sqrt((x * x).sum(axis=-1, keepdims=True)), unit.epsilon)
    else:
        x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + unit.epsilon)
    if unit.scale:
        x = x * tensors["scale"].astype(np.float64)
    if unit.bias:
        x = x + tensors["bias"].astype(np.float64)
    return np.asarray(x)


def _group_norm(unit: GroupNorm, tensors: Tensors) -> Array:
    shape = (unit.n, unit.pixels, unit.groups, unit.width)
    x = tensors["input"].astype(np.float64).reshape(shape)
    x = x - x.mean(axis=(1, 3), keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=(1, 3), keepdims=True) + unit.epsilon)
    x = x.reshape(unit.n, unit.pixels, unit.c) * tensors["scale"].astype(np.float64)
    residual = tensors.get("residual")
    if residual is not None:
        residual = residual.astype(np.float64).reshape(x.shape)
    return _finish(x, unit.epilogue, tensors, residual)


def _pool(unit: Pool, tensors: Tensors) -> Array:
    x = _slice(tensors["input"], unit.input, unit.c).astype(np.float64)
    top, left, bottom, right = unit.padding
    # windows may reach further than the padding when the output's size is rounded up
    far = max(0, (unit.p - 1) * unit.stride[0] + unit.r - unit.h - top - bottom)
    wide = max(0, (unit.q - 1) * unit.stride[1] + unit.s - unit.w - left - right)

    def padded(values: Array, inside: float, outside: float) -> Array:
        near = ((0, 0), (top, bottom), (left, right), (0, 0))
        values = np.pad(values, near, constant_values=inside)
        return np.pad(values, ((0, 0), (0, far), (0, wide), (0, 0)), constant_values=outside)

    places = [(i, j) for i in range(unit.r) for j in range(unit.s)]
    if unit.form == "max":
        x = padded(x, -np.inf, -np.inf)
        return np.asarray(np.max([_window(x, i, j, unit) for i, j in places], axis=0))
    counted = padded(np.ones(x.shape), 1.0 if unit.count_padding else 0.0, 0.0)
    x = padded(x, 0.0, 0.0)
    total = np.sum([_window(x, i, j, unit) for i, j in places], axis=0)
    return np.asarray(total / np.sum([_window(counted, i, j, unit) for i, j in places], axis=0))


def _slice(tensor: Array, view: View, channels: int) -> Array:
    return np.asarray(tensor[..., view.offset : view.offset + channels])


def _matrices(buffer: Array, unit: Matmul, at: Matrix, rows: int, columns: int) -> Array:
    """Return a view [batch, rows, columns] of a buffer."""
    outer, inner = unit.batch
    item = buffer.itemsize
    steps = tuple(s * item for s in (at.outer, at.inner, at.row, at.column))
    start = buffer.reshape(-1)[at.offset :]
    view = np.lib.stride_tricks.as_strided(start, (outer, inner, rows, columns), steps)
    return view.reshape(-1, rows, columns) if inner == 1 or outer == 1 else view


def _heads(buffer: Array, unit: Attention, name: Literal["q", "k", "v", "y"]) -> Array:
    """Return a view [batch, heads, rows, dim] of a buffer."""
    at, rows = unit.heads_of(name), unit.queries if name in "qy" else unit.keys
    shape = (unit.batch, unit.heads_in(name), rows, unit.dim if name in "qk" else unit.dim_v)
    steps = tuple(s * buffer.itemsize for s in (at.batch, at.head, at.row, 1))
    start = buffer.reshape(-1)[at.offset :]
    return np.lib.stride_tricks.as_strided(start, shape, steps)
