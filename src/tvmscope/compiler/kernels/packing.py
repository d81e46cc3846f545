"""Weights and constants in the order in which the CPU kernels read them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK

Array = np.ndarray[Any, Any]


def filled(array: Array, axis: int) -> Array:
    """Zeros behind the last channel, up to a whole block."""
    missing = -array.shape[axis] % CHANNEL_BLOCK
    widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, widths) if missing else array


def pack_dense(kernel: Array, *, blocked_input: bool) -> Array:
    """OIHW to (O/16, I/b, kh, kw, b, 16)."""
    kernel = filled(kernel, 0)
    if blocked_input:
        kernel = filled(kernel, 1)
    o, i, kh, kw = kernel.shape
    inner = CHANNEL_BLOCK if blocked_input else i
    split = kernel.reshape(o // CHANNEL_BLOCK, CHANNEL_BLOCK, i // inner, inner, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def merge_groups(kernel: Array, groups: int) -> tuple[Array, int] | None:
    """A grouped kernel with as few groups made into one as fill whole blocks of channels.

    The merged kernel has zeros between its groups; None where no number of groups fills blocks.
    """
    outputs, inputs = kernel.shape[0] // groups, kernel.shape[1]
    for merged in range(1, groups + 1):
        whole = inputs * merged % CHANNEL_BLOCK == 0 == outputs * merged % CHANNEL_BLOCK
        if groups % merged == 0 and whole:
            break
    else:
        return None
    wide = np.zeros((kernel.shape[0], inputs * merged, *kernel.shape[2:]), kernel.dtype)
    for group in range(groups):
        o, i = group * outputs, group % merged * inputs
        wide[o : o + outputs, i : i + inputs] = kernel[o : o + outputs]
    return wide, groups // merged


def pack_depthwise(kernel: Array) -> Array:
    """(C, 1, kh, kw) to (C/16, kh, kw, 16)."""
    kernel = filled(kernel, 0)[:, 0]
    c, kh, kw = kernel.shape
    split = kernel.reshape(c // CHANNEL_BLOCK, CHANNEL_BLOCK, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


def block_constant(value: GenericConst) -> relax.Expr | None:
    """A constant of four dimensions in channel blocks; None for others."""
    array = value.value.numpy()
    if array.ndim != 4:
        return None
    array = filled(array, 1)
    n, c, h, w = array.shape
    split = array.reshape(n, c // CHANNEL_BLOCK, CHANNEL_BLOCK, h, w)
    return relax.const(np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2)), str(array.dtype))


def pack_columns(weight: Array, panel: int) -> Array:
    """(K, N) to (N/panel, K, panel), filled up with zeros."""
    weight = np.pad(weight, [(0, 0), (0, -weight.shape[1] % panel)])
    k, n = weight.shape
    return np.ascontiguousarray(weight.reshape(k, n // panel, panel).transpose(1, 0, 2))
