"""Convolutions on channel blocks (N, C/16, H, W, 16), as tensor expressions for the CPU rules.

Every compute has the annotation `tvmscope.op`, by which its schedule rule recognises it, also after
it has been fused with the operators that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tvm import te, tirx
from tvm.ir import PrimType

from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.kernels.marks import OP
from tvmscope.compiler.kernels.packing import Groups

NO_NOTES: Mapping[str, str] = MappingProxyType({})
"""Further annotations of the main block: see `knobs`."""


@dataclass(frozen=True)
class Window:
    """The window's movement over an image."""

    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    """Padding: top, left, bottom, right."""
    dilation: tuple[int, int]

    def output(self, size: tuple[int, int], kernel: tuple[int, int]) -> tuple[int, int]:
        """Return the rows and columns of the result."""
        top, left, bottom, right = self.padding
        spans = (size[0] + top + bottom, size[1] + left + right)
        return (
            (spans[0] - (kernel[0] - 1) * self.dilation[0] - 1) // self.strides[0] + 1,
            (spans[1] - (kernel[1] - 1) * self.dilation[1] - 1) // self.strides[1] + 1,
        )


def _pad(data: te.Tensor, window: Window, extra_right: int, extra_bottom: int = 0) -> te.Tensor:
    """Add zeros around the image, and after it for the pixels that are computed and cropped."""
    top, left, bottom, right = window.padding
    right, bottom = right + extra_right, bottom + extra_bottom
    if not any((top, left, bottom, right)):
        return data
    height, width = int(data.shape[2]), int(data.shape[3])
    shape: list[tirx.Expr | int] = [*data.shape]
    shape[2], shape[3] = height + top + bottom, width + left + right

    def padded(*i: tirx.Expr) -> tirx.Expr:
        inside = tirx.all(i[2] >= top, i[2] < height + top, i[3] >= left, i[3] < width + left)
        value = data(i[0], i[1], i[2] - top, i[3] - left, *i[4:])
        return tirx.if_then_else(inside, value, tirx.const(0, data.dtype))

    return te.compute(shape, padded, name="pad_temp")


def _crop(result: te.Tensor, rows: int, width: int) -> te.Tensor:
    if (int(result.shape[2]), int(result.shape[3])) == (rows, width):
        return result
    shape: tuple[tirx.Expr | int, ...] = (*result.shape[:2], rows, width, result.shape[4])
    return te.compute(shape, lambda *i: result(*i), name="crop")


def _extra(window: Window, axis: int, computed: int, wanted: int) -> int:
    return (computed - wanted) * window.strides[axis]


def conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    computed: tuple[int, int],
    out_dtype: str,
    channels: int,
    groups: Groups | None = None,
    notes: Mapping[str, str] = NO_NOTES,
) -> te.Tensor:
    """Dense convolution over `channels` inputs (that each block reads), summed in `out_dtype`;
    `data` is blocked (5-D) or plain NCHW (4-D), `weight` is (O/16, I/b, kh, kw, b, 16), b = 16 for
    blocked data, else I. With `groups` the data is blocked, and `widen_groups` made the weight.
    More rows and columns may be `computed` than the result has; they are cropped."""
    blocks, _, kh, kw, inner, _ = (int(d) for d in weight.shape)
    size = (int(data.shape[2]), int(data.shape[3]))
    rows, width = window.output(size, (kh, kw))
    below = _extra(window, 0, computed[0], rows)
    padded = _pad(data, window, _extra(window, 1, computed[1], width), below)
    ic = te.reduce_axis((0, channels), "ic")
    y, x = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")
    (sy, sx), (dy, dx) = window.strides, window.dilation

    def value(n: tirx.Var, o: tirx.Var, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        if len(data.shape) == 4:
            return padded(n, ic, row, column)
        first = 0 if groups is None else _first_block(o, groups)
        return padded(n, first + ic // inner, row, column, ic % inner)

    result = te.compute(
        (data.shape[0], blocks, *computed, CHANNEL_BLOCK),
        lambda n, o, h, w, b: te.sum(
            value(n, o, h * sy + y * dy, w * sx + x * dx).astype(out_dtype)
            * weight[o, ic // inner, y, x, ic % inner, b].astype(out_dtype),
            axis=[ic, y, x],
        ),
        name="conv2d_nchwc",
        attrs={OP: "conv2d", **notes},
    )
    return _crop(result, rows, width)


def _first_block(block: tirx.Expr, groups: Groups) -> tirx.Expr:
    """Return the first block of inputs that a block of outputs reads."""
    if groups.aligned:
        each = groups.outputs // CHANNEL_BLOCK
        return block // each * (groups.inputs // CHANNEL_BLOCK)
    first = block * CHANNEL_BLOCK // groups.outputs * groups.inputs // CHANNEL_BLOCK
    return tirx.min(first, groups.last_first)


def _every(data: te.Tensor, strides: tuple[int, int]) -> te.Tensor:
    """Copy the pixels that a 1x1 convolution reads next to each other."""
    if strides == (1, 1):
        return data
    (sy, sx), (batch, blocks, height, width, lanes) = strides, data.shape
    shape = (batch, blocks, -(-int(height) // sy), -(-int(width) // sx), lanes)
    return te.compute(shape, lambda n, c, h, w, b: data(n, c, h * sy, w * sx, b), name="every")


def pointwise_conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    strides: tuple[int, int],
    computed: int,
    out_dtype: str,
    channels: int,
    notes: Mapping[str, str] = NO_NOTES,
) -> te.Tensor:
    """Compute a 1x1 convolution without padding, over all pixels of its result as if in one row.

    If more pixels are `computed` than the result has, the last one is repeated.
    """
    blocks, _, _, _, inner, _ = (int(d) for d in weight.shape)
    data = _every(data, strides)
    batch, _, height, width, _ = data.shape
    pixels = int(height) * int(width)
    ic = te.reduce_axis((0, channels), "ic")
    units = [te.reduce_axis((0, 1), name) for name in ("kh", "kw")]

    def element(n: tirx.Var, o: tirx.Var, h: tirx.Var, p: tirx.Var, b: tirx.Var) -> tirx.Expr:
        at = p if computed == pixels else tirx.min(p, pixels - 1)
        value = data(n, ic // inner, at // width, at % width, ic % inner).astype(out_dtype)
        factor = weight[o, ic // inner, units[0], units[1], ic % inner, b].astype(out_dtype)
        return te.sum(value * factor, axis=[ic, *units])

    result = te.compute(
        (batch, blocks, 1, computed, CHANNEL_BLOCK),
        element,
        name="conv2d_nchwc",
        attrs={OP: "conv2d", **notes},
    )
    return te.compute(
        (batch, blocks, height, width, CHANNEL_BLOCK),
        lambda n, o, h, w, b: result(n, o, 0, h * width + w, b),
        name="unflatten",
    )


def depthwise_conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    computed_width: int,
    out_dtype: str,
    notes: Mapping[str, str] = NO_NOTES,
) -> te.Tensor:
    """Compute a depthwise convolution of blocks in `out_dtype`; `weight` is (C/16, kh, kw, 16)."""
    kh, kw = int(weight.shape[1]), int(weight.shape[2])
    rows, width = window.output((int(data.shape[2]), int(data.shape[3])), (kh, kw))
    padded = _pad(data, window, _extra(window, 1, computed_width, width))
    y, x = te.reduce_axis((0, kh), "kh"), te.reduce_axis((0, kw), "kw")
    (sy, sx), (dy, dx) = window.strides, window.dilation
    result = te.compute(
        (data.shape[0], data.shape[1], rows, computed_width, CHANNEL_BLOCK),
        lambda n, c, h, w, b: te.sum(
            padded[n, c, h * sy + y * dy, w * sx + x * dx, b].astype(out_dtype)
            * weight[c, y, x, b].astype(out_dtype),
            axis=[y, x],
        ),
        name="depthwise_nchwc",
        attrs={OP: "depthwise", **notes},
    )
    return _crop(result, rows, width)


def to_blocks(data: te.Tensor) -> te.Tensor:
    """Convert NCHW to blocks; channels are padded with zeros."""
    n, channels, height, width = (int(d) for d in data.shape)
    blocks = -(-channels // CHANNEL_BLOCK)

    def value(i: tirx.Var, o: tirx.Var, h: tirx.Var, w: tirx.Var, b: tirx.Var) -> tirx.Expr:
        channel = o * CHANNEL_BLOCK + b
        if channels % CHANNEL_BLOCK == 0:
            return data[i, channel, h, w]
        zero = tirx.const(0, data.dtype)
        return tirx.if_then_else(channel < channels, data[i, channel, h, w], zero)

    return te.compute((n, blocks, height, width, CHANNEL_BLOCK), value, name="to_blocks")


def from_blocks(data: te.Tensor, channels: int) -> te.Tensor:
    """Convert blocks to NCHW, without the channels that fill the last block."""
    n, _, height, width, _ = (int(d) for d in data.shape)
    return te.compute(
        (n, channels, height, width),
        lambda i, c, h, w: data[i, c // CHANNEL_BLOCK, h, w, c % CHANNEL_BLOCK],
        name="from_blocks",
    )


def matmul(
    data: te.Tensor,
    packed: te.Tensor,
    columns: int,
    computed_rows: int,
    out_dtype: str,
    notes: Mapping[str, str] = NO_NOTES,
) -> te.Tensor:
    """Multiply (..., M, K) by column panels (N/p, K, p), or (..., N/p, K, p) with batches.

    One row in each of several batches, (B, 1, K) times one set of panels, is computed as B rows.
    """
    *batch, wanted, depth = (int(d) for d in data.shape)
    panels, panel = int(packed.shape[-3]), int(packed.shape[-1])
    shared = len(packed.shape) == 3
    axis = batch_of_rows((*batch, wanted, depth)) if shared else None
    if axis is not None:
        wanted, batch[axis] = batch[axis], 1

    def row(*i: tirx.Var | tirx.IterVar) -> tirx.Expr:
        *b, m, k = i
        return data(*b, m, k) if axis is None else data(*b[:axis], m, *b[axis + 1 :], 0, k)

    read: Callable[..., tirx.Expr] = row
    if computed_rows != wanted:
        read = _padded(row, (*batch, wanted, depth), computed_rows, data.dtype)
    k = te.reduce_axis((0, depth), "k")

    def element(*i: tirx.Var) -> tirx.Expr:
        *b, m, n = i
        where = [] if shared else b
        right = packed(*where, n // panel, k, n % panel)
        return te.sum(read(*b, m, k).astype(out_dtype) * right.astype(out_dtype), axis=[k])

    result = te.compute(
        (*batch, computed_rows, panels * panel),
        element,
        name="matmul",
        attrs={OP: "matmul", **notes},
    )
    if axis is not None:
        return te.compute(
            (*batch[:axis], wanted, *batch[axis + 1 :], 1, columns),
            lambda *i: result(*i[:axis], i[-2], *i[axis + 1 : -2], i[axis], i[-1]),
            name="crop",
        )
    if computed_rows == wanted and panels * panel == columns:
        return result
    return te.compute((*batch, wanted, columns), lambda *i: result(*i), name="crop")


def batch_of_rows(shape: Sequence[int]) -> int | None:
    """Return the axis of the rows in (B, 1, K); None if each batch has its own rows."""
    wide = [axis for axis, size in enumerate(shape[:-2]) if size > 1]
    return wide[0] if shape[-2] == 1 and len(wide) == 1 else None


def pack_panels(right: te.Tensor, panel: int) -> te.Tensor:
    """Pack (..., K, N) to column panels (..., N/p, K, p), padded with zeros."""
    *batch, depth, columns = (int(d) for d in right.shape)
    panels = -(-columns // panel)

    def element(*i: tirx.Var) -> tirx.Expr:
        *b, p, k, j = i
        column = p * panel + j
        if columns % panel == 0:
            return right(*b, k, column)
        zero = tirx.const(0, right.dtype)
        return tirx.if_then_else(column < columns, right(*b, k, column), zero)

    return te.compute((*batch, panels, depth, panel), element, name="pack")


def pad_rows(data: te.Tensor, rows: int) -> te.Tensor:
    """Append rows of zeros."""
    return _padded(data, tuple(int(d) for d in data.shape), rows, data.dtype)


def _padded(
    row: Callable[..., tirx.Expr], shape: Sequence[int], rows: int, dtype: PrimType
) -> te.Tensor:
    *batch, height, depth = shape
    zero = tirx.const(0, dtype)
    return te.compute(
        (*batch, rows, depth),
        lambda *i: tirx.if_then_else(i[-2] < height, row(*i), zero),
        name="pad_rows",
    )
