"""Pooling with indices, transposed convolutions of a given size, reductions of odd tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.messages import msg


def _max_pool(node: Node) -> relax.Expr | None:
    """Convert MaxPool with the indices of the maxima: one slice for each element of the window."""
    if node.results < 2:
        return None
    data = node.input(0)
    shape, dtype = shape_of(data), dtype_of(data)
    window = [int(k) for k in node.attributes["kernel_shape"]]
    rank = len(window)
    strides, dilations = (list(node.get(n, [1] * rank)) for n in ("strides", "dilations"))
    pads = _pads(node, shape[2:], window, strides, dilations)
    sizes = []
    for d in range(rank):
        room = shape[2 + d] + pads[d] + pads[d + rank] - dilations[d] * (window[d] - 1) - 1
        steps = -(-room // strides[d]) if node.get("ceil_mode", 0) else room // strides[d]
        if steps * strides[d] >= shape[2 + d] + pads[d]:  # a window that begins in the padding
            steps -= 1
        sizes.append(steps + 1)
    after = [
        max(
            0,
            (sizes[d] - 1) * strides[d]
            + dilations[d] * (window[d] - 1)
            + 1
            - shape[2 + d]
            - pads[d],
        )
        for d in range(rank)
    ]
    lowest = -np.inf if dtype.startswith("float") else np.iinfo(dtype).min
    widths = [0, 0, 0, 0, *(w for d in range(rank) for w in (pads[d], after[d]))]
    padded = node.emit(op.nn.pad(data, widths, "constant", float(lowest)))
    parts, steps_of = [], _strides(shape[2:], bool(node.get("storage_order", 0)))
    offsets = []
    for element in np.ndindex(*window):
        begin = [element[d] * dilations[d] for d in range(rank)]
        end = [begin[d] + (sizes[d] - 1) * strides[d] + 1 for d in range(rank)]
        part = op.strided_slice(padded, list(range(2, 2 + rank)), begin, end, strides)
        parts.append(node.emit(op.expand_dims(node.emit(part), 0)))
        offsets.append(sum(b * s for b, s in zip(begin, steps_of, strict=True)))
    stacked = node.emit(op.concat(parts, 0))
    best = node.emit(op.argmax(stacked, 0))
    origin = np.zeros([1] * (2 + rank), np.int64)
    for d in range(rank):
        along = [1] * (2 + rank)
        along[2 + d] = sizes[d]
        origin = origin + ((np.arange(sizes[d]) * strides[d] - pads[d]) * steps_of[d]).reshape(
            along
        )
    images = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], *[1] * rank)
    origin = origin + images * int(np.prod(shape[2:]))
    moved = node.emit(op.take(const(offsets, "int64"), node.emit(op.astype(best, "int64")), axis=0))
    places = node.emit(op.add(moved, const(origin, "int64")))
    return relax.Tuple([node.emit(op.max(stacked, 0)), places])


def _pads(
    node: Node, sizes: tuple[int, ...], window: list[int], strides: list[int], apart: list[int]
) -> list[int]:
    """Return the pads that the attribute gives, or that `auto_pad` determines."""
    rank, how = len(window), node.text("auto_pad", "NOTSET")
    if how == "VALID":
        return [0] * 2 * rank
    if how not in ("SAME_UPPER", "SAME_LOWER"):
        return [int(p) for p in node.get("pads", [0] * 2 * rank)]
    before, after = [], []
    for size, count, step, gap in zip(sizes, window, strides, apart, strict=True):
        total = max((-(-size // step) - 1) * step + gap * (count - 1) + 1 - size, 0)
        less, more = total // 2, total - total // 2
        before.append(less if how == "SAME_UPPER" else more)
        after.append(more if how == "SAME_UPPER" else less)
    return before + after


def _strides(sizes: tuple[int, ...], by_column: bool) -> list[int]:
    """Return the distance of neighbours along each axis in a flat image."""
    order = range(len(sizes)) if by_column else range(len(sizes))[::-1]
    found, step = [0] * len(sizes), 1
    for d in order:
        found[d] = step
        step *= sizes[d]
    return found


def _conv_transpose(node: Node) -> relax.Expr | None:
    """Convert a requested output size to the padding that gives it; the rest is TVM's."""
    wanted = node.get("output_shape", None)
    if wanted is None:
        return None
    data, weight = node.input(0), node.input(1)
    sizes, window = shape_of(data)[2:], shape_of(weight)[2:]
    rank = len(window)
    strides, apart = (list(node.get(n, [1] * rank)) for n in ("strides", "dilations"))
    extra = list(node.get("output_padding", [0] * rank))
    before, after = [], []
    for d in range(rank):
        whole = strides[d] * (sizes[d] - 1) + extra[d] + (window[d] - 1) * apart[d] + 1
        total = whole - int(wanted[len(wanted) - rank + d])
        if total < 0:  # the missing rows are added at the end, as with output padding
            extra[d] -= total
            total = 0
        half = total // 2
        upper = node.text("auto_pad", "NOTSET") == "SAME_UPPER"
        before.append(half if upper else total - half)
        after.append(total - half if upper else half)
    attributes = dict(node.attributes)
    attributes.pop("output_shape")
    attributes.pop("auto_pad", None)
    attributes |= {"pads": tuple(before + after), "output_padding": tuple(extra)}
    convert = onnx_frontend._get_convert_map()["ConvTranspose"].get_converter(node.opset)
    inputs = onnx_frontend.onnx_input(list(node.inputs))
    result: relax.Expr = convert(node.builder, inputs, attributes, [{}, {}])
    return result


def _extreme(reduce: Callable[..., relax.Expr], sign: int) -> Converter:
    """Return a converter for a maximum or minimum of booleans, or of an empty tensor."""

    def convert(node: Node) -> relax.Expr | None:
        data = node.input(0)
        shape, dtype = shape_of(data), dtype_of(data)
        if dtype != "bool" and 0 not in shape:
            return None
        given = node.constant(1) if node.opset >= 18 else np.array(node.get("axes", ()))
        axes = [] if given is None else [int(a) % len(shape) for a in given]
        if not axes and not node.get("noop_with_empty_axes", 0):
            axes = list(range(len(shape)))
        keep = bool(node.get("keepdims", 1))
        if dtype == "bool":
            numbers = node.emit(op.astype(data, "int8"))
            return op.astype(node.emit(reduce(numbers, axes, keepdims=keep)), "bool")
        left = [1 if n in axes else d for n, d in enumerate(shape) if keep or n not in axes]
        if 0 in left:
            raise Unsupported(msg("an empty result"))
        if dtype.startswith("float"):
            least: float = -sign * np.inf
        else:
            least = np.iinfo(dtype).min if sign > 0 else np.iinfo(dtype).max
        return const(np.full(left, least), dtype)

    return convert


CONVERTERS: dict[str, Converter] = {
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "ReduceMax": _extreme(op.max, 1),
    "ReduceMin": _extreme(op.min, -1),
}
