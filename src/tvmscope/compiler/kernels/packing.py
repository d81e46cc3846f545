"""Weights and constants in the order in which the CPU kernels read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK

Array = np.ndarray[Any, Any]


def filled(array: Array, axis: int) -> Array:
    """Append zeros after the last channel, up to a whole block."""
    missing = -array.shape[axis] % CHANNEL_BLOCK
    widths = [(0, missing if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, widths) if missing else array


def pack_dense(kernel: Array, *, blocked_input: bool) -> Array:
    """Pack OIHW to (O/16, I/b, kh, kw, b, 16)."""
    kernel = filled(kernel, 0)
    if blocked_input:
        kernel = filled(kernel, 1)
    o, i, kh, kw = kernel.shape
    inner = CHANNEL_BLOCK if blocked_input else i
    split = kernel.reshape(o // CHANNEL_BLOCK, CHANNEL_BLOCK, i // inner, inner, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


@dataclass(frozen=True)
class Groups:
    """Which blocks of input channels a block of output channels depends on, in a convolution of
    `count` groups, each of `inputs` and `outputs` channels."""

    count: int
    inputs: int
    outputs: int

    @property
    def aligned(self) -> bool:
        """Whether groups are whole blocks."""
        return self.inputs % CHANNEL_BLOCK == 0 == self.outputs % CHANNEL_BLOCK

    @property
    def blocks(self) -> int:
        """Blocks of input channels that each block of outputs reads: the maximum over all blocks of
        outputs."""
        return max(last - first + 1 for first, last in self._spans())

    def _spans(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.count * self.outputs, CHANNEL_BLOCK):
            end = min(start + CHANNEL_BLOCK, self.count * self.outputs) - 1
            first = start // self.outputs * self.inputs
            last = (end // self.outputs + 1) * self.inputs - 1
            yield first // CHANNEL_BLOCK, last // CHANNEL_BLOCK

    @property
    def last_first(self) -> int:
        """The first of the last blocks that can be read."""
        return -(-self.count * self.inputs // CHANNEL_BLOCK) - self.blocks


def widen_groups(kernel: Array, groups: Groups) -> Array:
    """Widen a grouped kernel to all channels that its blocks read; put zeros between groups."""
    outputs, inputs = kernel.shape[:2]
    wide = np.zeros((outputs, groups.blocks * CHANNEL_BLOCK, *kernel.shape[2:]), kernel.dtype)
    for channel in range(outputs):
        first = channel // CHANNEL_BLOCK * CHANNEL_BLOCK // groups.outputs * inputs // CHANNEL_BLOCK
        start = channel // groups.outputs * inputs
        start -= min(first, groups.last_first) * CHANNEL_BLOCK
        wide[channel, start : start + inputs] = kernel[channel]
    return wide


def pack_depthwise(kernel: Array) -> Array:
    """Pack (C, 1, kh, kw) to (C/16, kh, kw, 16)."""
    kernel = filled(kernel, 0)[:, 0]
    c, kh, kw = kernel.shape
    split = kernel.reshape(c // CHANNEL_BLOCK, CHANNEL_BLOCK, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


def block_constant(value: GenericConst) -> relax.Expr | None:
    """Convert a constant of four dimensions to channel blocks; None for others."""
    array = value.value.numpy()
    if array.ndim != 4:
        return None
    array = filled(array, 1)
    n, c, h, w = array.shape
    split = array.reshape(n, c // CHANNEL_BLOCK, CHANNEL_BLOCK, h, w)
    return relax.const(np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2)), str(array.dtype))


def pack_columns(weight: Array, panel: int) -> Array:
    """Pack (K, N) to (N/panel, K, panel), padded with zeros."""
    weight = np.pad(weight, [(0, 0), (0, -weight.shape[1] % panel)])
    k, n = weight.shape
    return np.ascontiguousarray(weight.reshape(k, n // panel, panel).transpose(1, 0, 2))
