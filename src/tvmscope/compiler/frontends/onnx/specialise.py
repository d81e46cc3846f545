"""Finds the inputs that determine shapes or operations (axes, pads): their values become constants.

A compiled model has fixed shapes. An input that determines them, directly or through shape
arithmetic, is bound to the value that it has in the model's first set of inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

_MOST = 64
"""The most elements of an input that may determine shapes; larger ones are data."""
_VALUE_FREE = frozenset(("Shape", "Size"))
"""Operators that do not read the values of their input."""

_REDUCTIONS = tuple(
    f"Reduce{name}"
    for name in (
        "Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare",
    )
)  # fmt: skip

DECIDING: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_REDUCTIONS, (1,)),
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "CumProd": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "TensorScatter": (),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""By operator: the inputs that determine shapes or the operation."""


def deciding_inputs(graph: onnx.GraphProto, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs whose values some node needs at compile time, with these values."""
    makers = {name: node for node in graph.node for name in node.output if name}
    waiting = list(_deciding(graph.node))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        node = makers.get(name)
        if node is not None and node.op_type not in _VALUE_FREE:
            waiting += node.input
    return {
        value.name: arrays[value.name]
        for value in graph.input
        if value.name in seen and value.name in arrays and _decides(arrays[value.name])
    }


def _decides(array: Array) -> bool:
    return bool(array.ndim <= 1 and array.size <= _MOST)


def _deciding(nodes: Iterable[onnx.NodeProto]) -> Iterable[str]:
    """Yield the tensors whose values nodes need at compile time, including nodes inside bodies."""
    for node in nodes:
        for index in DECIDING.get(node.op_type, ()):
            if index < len(node.input) and node.input[index]:
                yield node.input[index]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _deciding(body.node)
