"""Shapes, slices and other operators that only move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import op

from tvmscope.compiler.frontends.onnx.converters.node import (
    Array,
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.compiler.graph.rewrite import static_shape
from tvmscope.messages import msg


def _shape(node: Node) -> relax.Expr | None:
    """Convert Shape to a constant; only TVM's converter can express a mask selection's size."""
    shape = static_shape(node.input(0))
    if shape is None:
        return None
    start, end = node.get("start", 0), node.get("end", len(shape))
    return const(np.array(shape[slice(start, end)]), "int64")


def _size(node: Node) -> relax.Expr:
    return const(int(np.prod(shape_of(node.input(0)), dtype=np.int64)), "int64")


def _slice(node: Node) -> relax.Expr:
    """Convert Slice: forward steps to a strided slice, backward ones to constant indices."""
    data = node.input(0)
    shape = shape_of(data)
    starts, ends, axes, steps = _bounds(node, len(shape))
    forward: dict[int, tuple[int, int, int]] = {}
    result = data
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        number = axis % len(shape)
        begin, stop, _ = slice(start, end, step).indices(shape[number])
        if step > 0:
            forward[number] = (begin, max(begin, stop), step)
        else:
            places = np.arange(begin, stop, step)
            result = node.emit(op.take(result, const(places, "int64"), axis=number))
    changed = {n: b for n, b in forward.items() if b != (0, shape[n], 1)}
    if not changed:
        return result
    begins, stops, strides = (list(column) for column in zip(*changed.values(), strict=True))
    return node.emit(op.strided_slice(result, list(changed), begins, stops, strides))


def _bounds(node: Node, rank: int) -> tuple[Sequence[int], ...]:
    if node.opset < 10:
        starts, ends = node.get("starts", ()), node.get("ends", ())
        axes, steps = node.get("axes", range(len(starts))), None
    else:
        arrays = [node.constant(index) for index in range(1, 5)]
        starts, ends, axes, steps = (None if a is None else a.tolist() for a in arrays)
    if starts is None or ends is None:
        raise Unsupported(msg("a slice without bounds"))
    axes = range(len(starts)) if axes is None else axes
    return starts, ends, axes, [1] * len(starts) if steps is None else steps


def _split(node: Node) -> relax.Expr | None:
    """Split into parts of given sizes if one is empty; TVM converts all other splits."""
    data = node.input(0)
    sizes = node.constant(1) if node.opset >= 13 else node.get("split", None)
    known = node.array(0)
    if known is not None and known.ndim == 1:
        return _split_sizes(known, sizes, node.results)
    if sizes is None or 0 not in list(sizes):
        return None
    axis = int(node.get("axis", 0)) % len(shape_of(data))
    parts, start = [], 0
    for size in map(int, sizes):
        if size:
            part = node.emit(op.strided_slice(data, [axis], [start], [start + size]))
        else:
            shape = [0 if n == axis else d for n, d in enumerate(shape_of(data))]
            part = const(np.zeros(shape), dtype_of(data))
        parts.append(part)
        start += size
    return relax.Tuple(parts)


def _split_sizes(known: Array, sizes: Sequence[int] | Array | None, count: int) -> relax.Expr:
    """A constant vector, mostly the sizes of a tensor: its parts are constants too."""
    if sizes is None:
        most = -(-known.size // count)
        ends = [min(most * n, known.size) for n in range(1, count)]
    else:
        ends = np.cumsum([int(size) for size in sizes])[:-1].tolist()
    return relax.Tuple([const(part, str(known.dtype)) for part in np.split(known, ends)])


def _unsqueeze(node: Node) -> relax.Expr | None:
    """Axes may also be one number instead of a list."""
    axes = node.array(1) if node.opset >= 13 else None
    if axes is None or axes.ndim > 0:
        return None
    return op.expand_dims(node.input(0), int(axes))


def _reverse_sequence(node: Node) -> relax.Expr:
    """Reverse the first elements of each row, as many as its length says."""
    data, lengths = node.input(0), node.input(1)
    shape = shape_of(data)
    batch, time = int(node.get("batch_axis", 1)), int(node.get("time_axis", 0))
    along = [1] * len(shape)
    along[time] = shape[time]
    across = [1] * len(shape)
    across[batch] = shape[batch]
    places = const(np.arange(shape[time]).reshape(along), "int64")
    count = node.emit(op.reshape(node.emit(op.astype(lengths, "int64")), across))
    last = node.emit(op.subtract(count, const(1, "int64")))
    turned = node.emit(op.subtract(last, places))
    chosen = node.emit(op.where(node.emit(op.less(places, count)), turned, places))
    return op.gather_elements(data, node.emit(op.broadcast_to(chosen, shape)), time)


def _col_to_im(node: Node) -> relax.Expr:
    """Add blocks up to an image: a scatter with constant indices."""
    data, image, block = node.input(0), node.constant(1), node.constant(2)
    if image is None or block is None:
        raise Unsupported(msg("no image or block shape"))
    rank = len(image)
    pads = list(node.get("pads", [0] * 2 * rank))
    strides, dilations = (list(node.get(n, [1] * rank)) for n in ("strides", "dilations"))
    padded = [int(image[d]) + pads[d] + pads[d + rank] for d in range(rank)]
    places = _block_places(padded, [int(b) for b in block], strides, dilations)
    batch, channels, _ = shape_of(data)
    channels //= int(np.prod(block))
    updates = node.emit(op.reshape(data, (batch, channels, places.size)))
    index = np.broadcast_to(places.reshape(-1), (batch, channels, places.size))
    empty = const(np.zeros((batch, channels, int(np.prod(padded)))), dtype_of(data))
    flat = node.emit(op.scatter_elements(empty, const(index, "int64"), updates, 2, "add"))
    whole = node.emit(op.reshape(flat, (batch, channels, *padded)))
    ends = [pads[d] + int(image[d]) for d in range(rank)]
    return op.strided_slice(whole, list(range(2, 2 + rank)), pads[:rank], ends)


def _block_places(
    padded: list[int], block: list[int], strides: list[int], dilations: list[int]
) -> Array:
    """Return for each element of a block and each block the index in the flat padded image."""
    place = np.zeros((1, 1), np.int64)
    for size, count, step, apart in zip(padded, block, strides, dilations, strict=True):
        blocks = (size - apart * (count - 1) - 1) // step + 1
        here = np.arange(count)[:, None] * apart + np.arange(blocks)[None, :] * step
        place = place[:, None, :, None] * size + here[None, :, None, :]
        place = place.reshape(place.shape[0] * count, -1)
    return place


CONVERTERS: dict[str, Converter] = {
    "Col2Im": _col_to_im,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Unsqueeze": _unsqueeze,
}
