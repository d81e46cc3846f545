"""Turns transposed convolutions with constant weights into ordinary ones.

With stride s, the outputs at one of the s x s positions within a step use every s-th weight only:
a small convolution of the input. All of them together are one convolution with s x s times the
outputs, whose result is then spread over the positions (depth to space). Nothing is multiplied by
the zeros that the textbook definition puts between the inputs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import Rewriter, rewrite_calls, static_shape

Array = np.ndarray[Any, Any]


def subpixel_transposed(*, channels_last: bool = False) -> tvm.transform.Pass:
    """Return the pass. With `channels_last`, the channels of each position lie together: a result
    in NHWC is then spread in whole pixels."""
    rewrite = partial(_rewrite, channels_last)
    return rewrite_calls("SubpixelTransposed", {"relax.nn.conv2d_transpose": rewrite})


def _rewrite(channels_last: bool, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    attrs, (data, weight) = call.attrs, call.args
    shape, result = static_shape(data), static_shape(call)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    if not isinstance(weight, GenericConst) or layouts != ("NCHW", "IOHW", "NCHW"):
        return None
    if shape is None or result is None:
        return None
    if any(int(d) != 1 for d in attrs.dilation):
        return None
    top, left = (int(p) for p in list(attrs.padding)[:2])
    down, across = (int(s) for s in attrs.strides)
    groups = int(attrs.groups)
    of_groups = np.split(weight.value.numpy(), groups)
    kernel = np.concatenate([split_kernel(each, (down, across)) for each in of_groups])
    taps_y, taps_x = kernel.shape[2:]
    # Steps of the output that are needed, counted from the first one before cropping.
    rows = (result[2] - 1 + top) // down + 1
    columns = (result[3] - 1 + left) // across + 1
    padding = (taps_y - 1, taps_x - 1, rows - shape[2], columns - shape[3])
    if min(padding) < 0:
        return None  # it reads more inputs than the outputs need: rare, and not worth a crop
    emit = rewriter.builder_.emit
    batch, outputs = shape[0], result[1]
    pieces, order = (outputs, down, across), [0, 1, 4, 2, 5, 3]
    if channels_last and groups == 1:  # a group's outputs lie together
        kernel = _positions_first(kernel, pieces)
        pieces, order = (down, across, outputs), [0, 3, 4, 1, 5, 2]
    weight, wanted = relax.const(kernel), attrs.out_dtype or None
    small = emit(relax.op.nn.conv2d(data, weight, padding=padding, groups=groups, out_dtype=wanted))
    parts = emit(relax.op.reshape(small, (batch, *pieces, rows, columns)))
    turned = emit(relax.op.permute_dims(parts, order))
    whole = emit(relax.op.reshape(turned, (batch, outputs, rows * down, columns * across)))
    return relax.op.strided_slice(
        whole, axes=[2, 3], begin=[top, left], end=[top + result[2], left + result[3]]
    )


def _positions_first(kernel: Array, pieces: tuple[int, int, int]) -> Array:
    """Reorder the kernel's outputs from (O, s, s) to (s, s, O)."""
    parts = kernel.reshape(*pieces, *kernel.shape[1:]).transpose(1, 2, 0, 3, 4, 5)
    return np.ascontiguousarray(parts.reshape(kernel.shape))


def split_kernel(kernel: Array, strides: tuple[int, int]) -> Array:
    """Split IOHW to the (O * s * s, I, ceil(H/s), ceil(W/s)) kernel of the ordinary convolution."""
    i, o, height, width = kernel.shape
    down, across = strides
    taps = -(-height // down), -(-width // across)
    full = np.zeros((i, o, taps[0] * down, taps[1] * across), kernel.dtype)
    full[:, :, :height, :width] = kernel
    parts = full.reshape(i, o, taps[0], down, taps[1], across)
    flipped = parts[:, :, ::-1, :, ::-1, :]  # a convolution traverses its kernel in reverse
    ordered = flipped.transpose(1, 3, 5, 0, 2, 4)
    return np.ascontiguousarray(ordered.reshape(o * down * across, i, *taps))
