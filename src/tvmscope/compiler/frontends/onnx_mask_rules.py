"""What each ONNX operator makes of tensors that have an element for each chosen place of a mask.

A rule writes the node in fixed sizes and gives its value; None means that it is a plain node.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tvmscope.compiler.frontends import onnx_places as known
from tvmscope.compiler.frontends.onnx_places import FLOATS, Array, Count, Lost, Places, Value

if TYPE_CHECKING:
    from tvmscope.compiler.frontends.onnx_masks import Walk

_COMBINE = {"add": "Add", "mul": "Mul", "min": "Min", "max": "Max"}


def _nonzero(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """The coordinates of all places."""
    tensor = node.input[0]
    if values[0].places or not values[0].shape or not prod(values[0].shape):
        return None
    shape = values[0].shape
    base, times = _base(walk, tensor, shape)
    if base in walk.left:
        return None
    array = np.indices(shape).reshape(len(shape), -1)
    walk.added.append(numpy_helper.from_array(array, node.output[0]))
    return Value(array.shape, array, Places(base, times, prod(shape), tensor), 1)


def _base(walk: Walk, mask: str, shape: tuple[int, ...]) -> tuple[str, int]:
    """The mask that was repeated along further axes to give this one, and how often."""
    wide = walk.maker.get(mask)
    narrow = (
        walk.maker.get(wide.input[0]) if wide is not None and wide.op_type == "Expand" else None
    )
    if narrow is None or narrow.op_type not in ("Unsqueeze", "Reshape"):
        return mask, 1
    base, ones = walk.value(narrow.input[0]), walk.value(narrow.output[0])
    if base is None or ones is None or not base.shape:
        return mask, 1
    rest = shape[len(base.shape) :]
    fits = shape == base.shape + rest and ones.shape == base.shape + (1,) * len(rest)
    return (narrow.input[0], prod(rest)) if fits else (mask, 1)


def _reduce_sum(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """The number of chosen places, as PyTorch's newer exporter writes it."""
    cast, given = walk.maker.get(node.input[0]), known.attributes(node)
    if cast is None or cast.op_type != "Cast" or len(values) != 1 or "axes" in given:
        return None
    mask = cast.input[0]
    flat = walk.maker.get(mask)
    if flat is not None and flat.op_type == "Reshape":
        mask = flat.input[0]
    whole = known.attributes(cast)["to"] in (TensorProto.INT64, TensorProto.INT32)
    if not whole or walk.dtype(mask) != TensorProto.BOOL or values[0].places or mask in walk.left:
        return None
    walk.nodes.append(node)
    array = np.empty((1,) * (len(values[0].shape) if given.get("keepdims", 1) else 0), object)
    array[...] = Count(Places(mask, 1, prod(values[0].shape), mask), counted=True)
    return Value(array.shape, array)


def _shape(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    held, given = values[0], known.attributes(node)
    dims = np.array([*held.shape], object)
    dims[held.axis] = Count(known.places_of(held))
    dims = dims[given.get("start", 0) : given.get("end")]
    walk.nodes.append(node)
    return Value(dims.shape, dims if known.counts_in(dims) else dims.astype(np.int64))


def _elementwise(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    result = known.broadcast(values)
    if node.op_type == "Div" and walk.dtype(node.output[0]) not in FLOATS:
        raise Lost(result.mask)  # by zero, at a place that was not chosen
    walk.nodes.append(node)
    found = known.evaluate(node, [v.array for v in values], walk.opset)
    return Value(result.shape, found, result.places, result.axis)


def _moved(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    """Coordinates in another order; other tensors are not met in it."""
    found = known.evaluate(node, [v.array for v in values], walk.opset)
    axis = None if found is None else known.moved(node, values, found.ndim)
    if found is None or axis is None:
        raise Lost(next(v.mask for v in values if v.places))
    walk.nodes.append(node)
    return Value(found.shape, found, values[0].places, axis)


def _expand(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    if values[1].array is None:
        return None
    value, target = values[0], known.of_shape(values[1].array)
    tensor, like, places = node.input[0], node.output[0], target.places
    if places and not value.places and -target.end <= len(value.shape):
        axis = target.end + len(value.shape)
        if 1 < value.shape[axis] <= places.size:
            tensor = walk.picked(tensor, axis, places, like, exactly=True)
            value = Value(_with(value.shape, axis, places.size), None, places, axis)
    if not value.places and not places:
        return None
    result = known.broadcast([value, target])
    walk.replace(node, "Expand", tensor, walk.constant(result.shape, like))
    array = None if value.array is None else np.broadcast_to(value.array, result.shape)
    return Value(result.shape, array, result.places, result.axis)


def _constant_of_shape(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    if values[0].array is None or not known.counts_in(values[0].array):
        return None
    result, made = known.of_shape(values[0].array), onnx.NodeProto()
    made.CopyFrom(node)
    made.input[0] = walk.constant(result.shape, node.output[0])
    walk.nodes.append(made)
    return result


def _slice(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """The first values, as many as there are chosen places."""
    arrays = [v.array for v in values[1:]]
    if len(values) < 3 or arrays[1] is None or arrays[1].shape != (1,):
        return None
    end = arrays[1][0]
    if not isinstance(end, Count):
        return _moved(walk, node, values) if values[0].places else None
    places, value = end.places, values[0]
    arrays += [np.zeros(1, int), np.ones(1, int)][len(arrays) - 2 :]
    start, _, axis, step = (None if a is None else int(a[0]) for a in arrays)
    if len(values) != len(node.input) or start != 0 or axis is None or step != 1:
        raise Lost(places.mask)
    axis %= len(value.shape)
    tensor = node.input[0]
    if not value.places:
        tensor = walk.picked(tensor, axis, places, node.output[0], exactly=False)
        value = Value(_with(value.shape, axis, places.size), None, places, axis)
    if (value.places, value.axis) != (places, axis):
        raise Lost(places.mask)
    walk.replace(node, "Identity", tensor)
    return value


def _reshape(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    """To the same shape, or to one axis where that of the places is the first one."""
    value, dims = values[0], values[1].array
    places = known.places_of(value)
    if dims is None or known.attributes(node).get("allowzero"):
        raise Lost(places.mask)
    same = [
        d in (-1, 0) or (n, d.places) == (value.axis, places)
        if isinstance(d, Count)
        else d in (-1, 0) or (n != value.axis and d == value.shape[n])
        for n, d in enumerate(dims[: len(value.shape)])
    ]
    if dims.tolist() == [-1] and value.axis == 0:
        rest = prod(value.shape[1:])
        flat = Places(places.mask, places.times * rest, places.size * rest, places.tensor)
        array = None if value.array is None else value.array.reshape(-1)
        value = Value((flat.size,), array, flat, 0)
    elif len(dims) != len(value.shape) or not all(same):
        raise Lost(places.mask)
    shape = walk.constant(value.shape, node.output[0])
    walk.replace(node, "Reshape", node.input[0], shape)
    return value


def _gather(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    """Along one axis, by places of a mask of that axis."""
    data, indices = values
    axis = known.attributes(node).get("axis", 0) % len(data.shape)
    if data.places or indices.array is None:
        raise Lost(data.mask or indices.mask)
    if (indices.array < 0).any() or (indices.array >= data.shape[axis]).any():
        raise Lost(indices.mask)
    walk.nodes.append(node)
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    return Value(shape, None, indices.places, axis + indices.axis)


def _gather_nd(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    data, indices = values
    rows, lead = _rows(data, indices)
    if known.attributes(node).get("batch_dims", 0):
        raise Lost(indices.mask)
    shape = (*indices.shape[:-1], *data.shape[len(lead) :])
    if _is_all(rows, lead):
        walk.replace(node, "Reshape", node.input[0], walk.constant(shape, node.output[0]))
    else:
        walk.nodes.append(node)
    return Value(shape, None, indices.places, indices.axis)


def _scatter_nd(walk: Walk, node: onnx.NodeProto, values: list[Value]) -> Value:
    """Every place gets its value if it is chosen, else what it has."""
    data, indices, updates = values
    rows, lead = _rows(data, indices)
    places, axis, like = known.places_of(indices), indices.axis, node.output[0]
    old, coordinates, new = node.input
    wanted = (*indices.shape[:-1], *data.shape[len(lead) :])
    plain = not updates.places and len(updates.shape) == len(wanted)
    if plain and updates.shape[axis] <= places.size:
        new = walk.picked(new, axis, places, like, exactly=True)
        updates = Value(_with(updates.shape, axis, places.size), None, places, axis)
    fits = (updates.shape, updates.places, updates.axis) == (wanted, places, axis)
    if not fits or len(np.unique(rows)) < len(rows):
        raise Lost(places.mask)
    whole = _is_all(rows, lead)
    mask = _mask(walk, indices, lead if whole else None, len(data.shape) - len(lead), like)
    if not whole:
        old = walk.emit("GatherND", like, old, coordinates)
    elif wanted != data.shape:
        new = walk.reshaped(new, data.shape, like)
    how = known.attributes(node).get("reduction", b"none").decode()
    if how != "none":
        new = walk.emit(_COMBINE[how], like, old, new)
    if whole:
        walk.replace(node, "Where", mask, new, old)
    else:
        updated = walk.emit("Where", like, mask, new, old)
        walk.replace(node, "ScatterND", node.input[0], coordinates, updated)
    return Value(data.shape)


def _mask(walk: Walk, indices: Value, lead: tuple[int, ...] | None, inner: int, like: str) -> str:
    """The mask as wide as the coordinates, or in the shape of all the places that they name."""
    places, around, ones = known.places_of(indices), indices.shape[:-1], (1,) * inner
    if lead is not None and prod(around) == places.size:
        return walk.chosen(places, (*lead, *ones), like)
    flat = _with((1,) * len(around), indices.axis, places.size)
    mask = walk.chosen(places, (*flat, *ones), like)
    if lead is None or lead == around:
        return mask
    wide = walk.emit("Expand", like, mask, walk.constant((*around, *ones), like))
    return walk.reshaped(wide, (*lead, *ones), like)


def _rows(data: Value, indices: Value) -> tuple[Array, tuple[int, ...]]:
    """The places that coordinates name, as numbers among those of the leading axes."""
    if indices.array is None or indices.places is None or indices.end == -1 or data.places:
        raise Lost(data.mask or indices.mask)
    lead = data.shape[: indices.shape[-1]]
    rows = indices.array.reshape(-1, indices.shape[-1])
    if (rows < 0).any() or (rows >= np.array(lead)).any():
        raise Lost(indices.mask)
    return np.ravel_multi_index(tuple(rows.T), lead), lead


def _is_all(rows: Array, shape: tuple[int, ...]) -> bool:
    """Whether these are all the places of a shape, in order."""
    return rows.size == prod(shape) and bool((rows == np.arange(rows.size)).all())


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


Rule = Callable[["Walk", onnx.NodeProto, list[Value]], Value | None]
MAKERS: dict[str, Rule] = {
    "NonZero": _nonzero,
    "ReduceSum": _reduce_sum,
    "Expand": _expand,
    "Slice": _slice,
    "ConstantOfShape": _constant_of_shape,
}
"""They may make such a tensor, or a number of places, of plain ones."""
_MOVES = ("Transpose", "Unsqueeze", "Squeeze", "Concat")
_ELEMENTWISE = (
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sin",
    "Cos", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Elu", "Erf", "Gelu", "Softplus", "HardSigmoid",
    "Cast", "Identity", "Not", "IsNaN", "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "And",
    "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Where", "Clip",
)  # fmt: skip
RULES: dict[str, Rule] = {
    **MAKERS,
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "Shape": _shape,
    "Reshape": _reshape,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
}
