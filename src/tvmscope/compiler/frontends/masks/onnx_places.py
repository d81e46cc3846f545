"""The facts about an ONNX tensor that has one element for each selected element of a mask.

The rewritten tensor has an axis as long as the mask instead; `Value.axis` says which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_NAMING_AXES = {"Unsqueeze": 1, "Squeeze": 1, "Slice": 3}
"""The input that names axes, if no attribute does."""


class Lost(Exception):
    """The node's output depends on the mask in a way the pass does not handle."""


@dataclass(frozen=True)
class Places:
    """The elements of a mask, each repeated a number of times in a row."""

    mask: str
    times: int
    size: int
    """Number of elements, repetitions included."""
    tensor: str = field(compare=False)
    """The mask in this size, each element repeated."""


class Count(int):
    """The number of selected elements; as an integer, the number of all elements."""

    places: Places

    def __new__(cls, places: Places) -> Count:
        made = super().__new__(cls, places.size)
        made.places = places
        return made


@dataclass(frozen=True)
class Value:
    """A tensor of a fixed shape, with its elements if they are known."""

    shape: tuple[int, ...]
    array: Array | None = None
    places: Places | None = None
    axis: int = 0
    tensor: str = ""
    """The tensor's name; one with a value per element of the mask has its own name."""

    @property
    def end(self) -> int:
        """The axis, counted from the last one."""
        return self.axis - len(self.shape)


def counts_in(array: Array) -> list[Count]:
    """Return the sizes among these numbers that are known at run time only."""
    return [n for n in array.flat if isinstance(n, Count)] if array.dtype == object else []


def places_of(value: Value) -> Places:
    """Return the mask elements of a value that is known to have some."""
    assert value.places is not None
    return value.places


def of_shape(dims: Array) -> Value:
    """Return a tensor of this shape, known or not."""
    counts = counts_in(dims)
    if len(counts) > 1:
        raise Lost
    axis = next((n for n, d in enumerate(dims) if isinstance(d, Count)), 0)
    return Value(tuple(int(d) for d in dims), None, counts[0].places if counts else None, axis)


def broadcast(values: Sequence[Value]) -> Value:
    """Return the result of an elementwise operator; one input has a value per mask element."""
    held = next(v for v in values if v.places)
    for v in values:
        alone = not v.places and (-held.end > len(v.shape) or v.shape[held.end] == 1)
        if not alone and (v.places, v.end) != (held.places, held.end):
            raise Lost
    try:
        shape = np.broadcast_shapes(*(v.shape for v in values))
    except ValueError:
        raise Lost from None
    return Value(shape, None, held.places, held.end + len(shape))


def moved(node: onnx.NodeProto, values: Sequence[Value], rank: int) -> int | None:
    """Return the mask's axis after a node that only moves elements; None if the axis is lost."""
    given, axis = attributes(node), values[0].axis
    if node.op_type == "Transpose":
        return int([*given.get("perm", range(rank)[::-1])].index(axis))
    if node.op_type in _NAMING_AXES:
        named = next((v.array for v in values[_NAMING_AXES[node.op_type] :]), None)
        axes = given.get("axes") or (() if named is None else named)
        most = max(rank, len(values[0].shape))
        there = {int(a) % most for a in axes}
        others = [n for n in range(most) if n not in there]
        if node.op_type == "Unsqueeze":
            return others[axis]
        if not there or axis in there:
            return None
        return axis if node.op_type == "Slice" else others.index(axis)
    alike = all((v.places, v.axis) == (values[0].places, axis) for v in values)
    return axis if alike and given["axis"] % rank != axis else None


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as Python values."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def evaluate(node: onnx.NodeProto, arrays: Sequence[Array | None], opset: int) -> Array | None:
    """Return a node's result for known inputs; None if one is unknown, or the node cannot be run.

    A count is not a known number.
    """
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    if any(a is None or a.dtype == object for a in arrays) or len(node.output) != 1:
        return None
    graph = helper.make_graph(
        [node],
        "one",
        [onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names)],
        [onnx.ValueInfoProto(name=node.output[0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        results = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
        found = next(iter(results))  # a list; a dictionary by name only on request
    except Exception:  # the evaluator raises any type; unknown values are left to the importer
        return None
    return np.asarray(found)


def of_sizes(node: onnx.NodeProto, arrays: Sequence[Array | None]) -> Array | None:
    """Return a node's result for sizes if it only passes them on; otherwise None.

    ONNX's evaluator would turn them into plain numbers.
    """
    given, known = attributes(node), [a for a in arrays if a is not None]
    first, *rest = known
    if len(known) < len(arrays):
        return None
    match node.op_type:
        case "Cast" if given["to"] in (TensorProto.INT32, TensorProto.INT64):
            return first
        case "Identity":
            return first
        case "Shape":
            return np.array(first.shape, np.int64)
        case "Concat":
            return np.concatenate([a.astype(object) for a in known], given["axis"])
        case "Gather" if first.ndim == 1 and rest[0].dtype != object:
            return np.asarray(first[rest[0]], object)
        case "Unsqueeze":
            return np.expand_dims(first, tuple(given.get("axes") or rest[0]))
        case "Squeeze" if first.shape == (1,):
            return first.reshape(())
        case "Where":
            return np.where(*(a if n == 0 else a.astype(object) for n, a in enumerate(known)))
        case "Equal" if any((a < 0).all() for a in known):  # no size is negative
            return np.zeros(np.broadcast_shapes(*(a.shape for a in known)), bool)
    return None
