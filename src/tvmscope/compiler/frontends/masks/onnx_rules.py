"""How each ONNX operator handles tensors with one value per selected element of a mask.

A rule writes the node again, in fixed sizes, and returns what is known of its result. It returns
None for a node that has nothing to do with masks, and raises `Lost` where it cannot handle one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import onnx
from onnx import TensorProto

from tvmscope.compiler.frontends.masks import onnx_places as known
from tvmscope.compiler.frontends.masks.onnx_draft import Draft
from tvmscope.compiler.frontends.masks.onnx_places import FLOATS, Array, Count, Lost, Places, Value

_MOST_PLACES = 1 << 22
"""The largest mask whose coordinates are stored as constants."""
_COMBINE = {"add": "Add", "mul": "Mul", "min": "Min", "max": "Max"}


def _nonzero(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Return the coordinates of all elements of the mask."""
    (mask,) = values
    if mask.places or not mask.shape or not 0 < prod(mask.shape) <= _MOST_PLACES:
        return None
    array = np.indices(mask.shape).reshape(len(mask.shape), -1)
    base, times = _base(draft, mask.tensor, mask.shape)
    places = Places(base, times, prod(mask.shape), mask.tensor)
    return Value(array.shape, array, places, 1, draft.constant(array))


def _base(draft: Draft, mask: str, shape: tuple[int, ...]) -> tuple[str, int]:
    """Return the mask that was repeated along further axes to give this one, and how often."""
    wide = draft.maker.get(mask)
    narrow = (
        draft.maker.get(wide.input[0]) if wide is not None and wide.op_type == "Expand" else None
    )
    if narrow is None or narrow.op_type not in ("Unsqueeze", "Reshape"):
        return mask, 1
    base, ones = draft.value(narrow.input[0]), draft.value(narrow.output[0])
    if base is None or ones is None or not base.shape:
        return mask, 1
    rest = shape[len(base.shape) :]
    fits = shape == base.shape + rest and ones.shape == base.shape + (1,) * len(rest)
    return (narrow.input[0], prod(rest)) if fits else (mask, 1)


def _reduce_sum(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Return the number of selected elements, as PyTorch's newer exporter writes it."""
    cast, given = draft.maker.get(node.input[0]), known.attributes(node)
    if cast is None or cast.op_type != "Cast" or len(values) != 1 or "axes" in given:
        return None
    if given.get("noop_with_empty_axes"):
        return None
    mask = cast.input[0]
    flat = draft.maker.get(mask)
    if flat is not None and flat.op_type == "Reshape":
        mask = flat.input[0]
    whole = known.attributes(cast)["to"] in (TensorProto.INT64, TensorProto.INT32)
    if not whole or draft.dtype(mask) != TensorProto.BOOL or values[0].places:
        return None
    array = np.empty((1,) * (len(values[0].shape) if given.get("keepdims", 1) else 0), object)
    array[...] = Count(Places(mask, 1, prod(values[0].shape), mask))
    return Value(array.shape, array, tensor=node.output[0])


def _shape(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value:
    held, given = values[0], known.attributes(node)
    dims = np.array([*held.shape], object)
    dims[held.axis] = Count(known.places_of(held))
    dims = dims[given.get("start", 0) : given.get("end")]
    array = dims if known.counts_in(dims) else dims.astype(np.int64)
    return Value(array.shape, array, tensor=node.output[0])


def _elementwise(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value:
    if node.op_type == "Div" and draft.dtype(node.output[0]) not in FLOATS:
        raise Lost  # division by zero at an element that is not selected
    result = known.broadcast(values)
    found = known.evaluate(node, [v.array for v in values], draft.opset)
    return replace(result, array=found, tensor=draft.again(node, values))


def _moved(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value:
    """Evaluate coordinates in another order; no other tensor is reordered like this."""
    found = known.evaluate(node, [v.array for v in values], draft.opset)
    axis = None if found is None else known.moved(node, values, found.ndim)
    if found is None or axis is None:
        raise Lost
    return Value(found.shape, found, values[0].places, axis, draft.again(node, values))


def _expand(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    value, dims = values[0], values[1].array
    if dims is None or not (value.places or known.counts_in(dims)):
        return None
    target = known.of_shape(dims)
    if target.places and not value.places and -target.end <= len(value.shape):
        axis = target.end + len(value.shape)
        if 1 < value.shape[axis] <= target.places.size:
            value = draft.picked(value, axis, target.places, exactly=True)
    result = known.broadcast([value, target])
    array = None if value.array is None else np.broadcast_to(value.array, result.shape)
    tensor = draft.emit("Expand", value.tensor, draft.constant(result.shape))
    return replace(result, array=array, tensor=tensor)


def _constant_of_shape(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    dims = values[0].array
    if dims is None or not known.counts_in(dims):
        return None
    result = known.of_shape(dims)
    sizes = Value((len(dims),), tensor=draft.constant(result.shape))
    return replace(result, tensor=draft.again(node, [sizes]))


def _slice(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Take the first values, as many as there are selected elements."""
    value, arrays = values[0], [v.array for v in values[1:] if v.array is not None]
    if len(arrays) < max(2, len(values) - 1) or len(values) < len(node.input):
        return None
    end = arrays[1][0] if arrays[1].size == 1 else None
    if not isinstance(end, Count):
        return _moved(draft, node, values) if value.places else None
    arrays += [np.zeros(1, int), np.ones(1, int)][len(arrays) - 2 :]
    if any(a.size != 1 for a in arrays) or arrays[0][0] != 0 or arrays[3][0] != 1:
        return None
    axis = int(arrays[2][0]) % len(value.shape)
    if not value.places:
        return draft.picked(value, axis, end.places, exactly=False)
    return value if (value.places, value.axis) == (end.places, axis) else None


def _reshape(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Reshape to the same shape, or to one axis where the mask's axis is the first one."""
    value, dims = values[0], values[1].array
    if dims is None or not value.places or known.attributes(node).get("allowzero"):
        return None
    places = value.places
    same = [
        n == value.axis and d.places == places
        if isinstance(d, Count)
        else d in (-1, 0) or (n != value.axis and d == value.shape[n])
        for n, d in enumerate(dims[: len(value.shape)])
    ]
    if len(dims) == len(value.shape) and all(same):
        return value
    if dims.tolist() != [-1] or value.axis != 0:
        return None
    rest = prod(value.shape[1:])
    flat = Places(places.mask, places.times * rest, places.size * rest, places.tensor)
    array = None if value.array is None else value.array.reshape(-1)
    return Value((flat.size,), array, flat, 0, draft.reshaped(value.tensor, (flat.size,)))


def _gather(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Gather along one axis, at the selected elements of a mask of that axis."""
    data, indices = values
    axis = known.attributes(node).get("axis", 0) % len(data.shape)
    if data.places or indices.array is None:
        return None
    if (indices.array < 0).any() or (indices.array >= data.shape[axis]).any():
        return None
    shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    at = axis + indices.axis
    return Value(shape, None, indices.places, at, draft.again(node, values))


def _gather_nd(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    data, indices = values
    if known.attributes(node).get("batch_dims", 0):
        return None
    rows, lead = _rows(data, indices)
    shape = (*indices.shape[:-1], *data.shape[len(lead) :])
    whole = _is_all(rows, lead)
    tensor = draft.reshaped(data.tensor, shape) if whole else draft.again(node, values)
    return Value(shape, None, indices.places, indices.axis, tensor)


def _scatter_nd(draft: Draft, node: onnx.NodeProto, values: list[Value]) -> Value | None:
    """Assign to every selected element its value; the others keep theirs."""
    data, indices, updates = values
    rows, lead = _rows(data, indices)
    places, axis = known.places_of(indices), indices.axis
    wanted = (*indices.shape[:-1], *data.shape[len(lead) :])
    plain = not updates.places and len(updates.shape) == len(wanted)
    if plain and updates.shape[axis] <= places.size:
        updates = draft.picked(updates, axis, places, exactly=True)
    fits = (updates.shape, updates.places, updates.axis) == (wanted, places, axis)
    if not fits or len(np.unique(rows)) < len(rows):
        return None
    whole, old, new = _is_all(rows, lead), data.tensor, updates.tensor
    mask = _mask(draft, indices, lead if whole else None, len(data.shape) - len(lead))
    if not whole:
        old = draft.emit("GatherND", old, indices.tensor)
    elif wanted != data.shape:
        new = draft.reshaped(new, data.shape)
    how = known.attributes(node).get("reduction", b"none").decode()
    if how != "none":
        new = draft.emit(_COMBINE[how], old, new)
    if whole:
        draft.replace(node, "Where", mask, new, old)
    else:
        updated = draft.emit("Where", mask, new, old)
        draft.replace(node, "ScatterND", data.tensor, indices.tensor, updated)
    return Value(data.shape, tensor=node.output[0])


def _mask(draft: Draft, indices: Value, lead: tuple[int, ...] | None, inner: int) -> str:
    """Return the mask as wide as the coordinates, or in the shape of all elements they name."""
    places, around, ones = known.places_of(indices), indices.shape[:-1], (1,) * inner
    if lead is not None and prod(around) == places.size:
        return draft.chosen(places, (*lead, *ones))
    flat = [1] * len(around)
    flat[indices.axis] = places.size
    mask = draft.chosen(places, (*flat, *ones))
    if lead is None or lead == around:
        return mask
    wide = draft.emit("Expand", mask, draft.constant((*around, *ones)))
    return draft.reshaped(wide, (*lead, *ones))


def _rows(data: Value, indices: Value) -> tuple[Array, tuple[int, ...]]:
    """Return the flat indices, over the leading axes, that the coordinates name."""
    if indices.array is None or indices.places is None or indices.end == -1 or data.places:
        raise Lost
    lead = data.shape[: indices.shape[-1]]
    rows = indices.array.reshape(-1, indices.shape[-1])
    if (rows < 0).any() or (rows >= np.array(lead)).any():
        raise Lost
    return np.ravel_multi_index(tuple(rows.T), lead), lead


def _is_all(rows: Array, shape: tuple[int, ...]) -> bool:
    """Whether these are all flat indices of a shape, in order."""
    return rows.size == prod(shape) and bool((rows == np.arange(rows.size)).all())


Rule = Callable[[Draft, onnx.NodeProto, list[Value]], Value | None]
MAKERS: dict[str, Rule] = {
    "NonZero": _nonzero,
    "ReduceSum": _reduce_sum,
    "Expand": _expand,
    "Slice": _slice,
    "ConstantOfShape": _constant_of_shape,
}
"""Operators that may make such a tensor, or a number of elements, from plain tensors."""
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
