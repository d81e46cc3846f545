"""Rewrites assignments to masks in ONNX, whose sizes are known only at run time, to fixed sizes.

    ScatterND(x, Transpose(NonZero(mask)), Expand(v, [count]))  -> Where(mask, v, x)
    ScatterND(x, ..., f(GatherND(y, ...)))                      -> Where(mask, f(y), x)
    ScatterND(x, ..., Slice(v, 0, count))                       -> Where(mask, v[rank in mask], x)

A tensor with one value per selected element gets a counterpart with one value per element of the
mask. Only the values of selected elements matter, and only the scatter at the end needs the mask.
A scatter is replaced if the pass handles every node that leads to it; nodes that nothing else needs
are removed, and any other NonZero stays. Where each selected element takes the next one of several
values, the number of values is checked at run time: if it differs from the number of selected
elements, the result is NaN at those elements.
"""

from __future__ import annotations

from math import prod

import onnx

from tvmscope.compiler.frontends.masks import onnx_places as known
from tvmscope.compiler.frontends.masks import onnx_rules as rules
from tvmscope.compiler.frontends.masks.onnx_draft import Draft
from tvmscope.compiler.frontends.masks.onnx_places import Lost, Value

_ARITHMETIC = (
    "Constant", "Concat", "Gather", "Unsqueeze", "Squeeze", "Slice", "Cast", "Identity", "Add",
    "Sub", "Mul", "Equal", "Where", "ConstantOfShape", "Reshape", "Transpose", "Shape",
)  # fmt: skip
"""Operators that shape arithmetic consists of."""
_SMALL = 64
"""Largest number of elements of a shape; larger constants are not evaluated."""
_MOST_BYTES = 2**31 - 1
"""The largest model for which ONNX infers shapes."""


def fix_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its assignments to masks in fixed sizes; itself if there are none."""
    nodes = model.graph.node
    nested = any(a.HasField("g") or a.graphs for node in nodes for a in node.attribute)
    if nested or not {"NonZero", "ScatterND"} <= {node.op_type for node in nodes}:
        return model
    if model.ByteSize() > _MOST_BYTES:
        return model
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:  # the importer reports the error
        return model
    return _rewritten(Draft(inferred)) or model


def _rewritten(draft: Draft) -> onnx.ModelProto | None:
    """Walk the nodes once; return the new model, or None if there is nothing to rewrite."""
    for node in draft.model.graph.node:
        draft.like = node.output[0]
        value = _sizes(draft, node) or _by_rule(draft, node) or _plain(draft, node)
        if value is not None:
            draft.values[node.output[0]] = value
        if node.output[0] not in draft.replaced:
            draft.nodes.append(node)
    return draft.finished()


def _inputs(draft: Draft, node: onnx.NodeProto) -> list[Value | None]:
    return [draft.value(name) for name in node.input if name]


def _plain(draft: Draft, node: onnx.NodeProto) -> Value | None:
    """Evaluate a node unrelated to masks, if its result may be part of a shape."""
    inputs = _inputs(draft, node)
    arrays = [v.array for v in inputs if v is not None and v.array is not None]
    small = all(a.size <= _SMALL and a.dtype != object for a in arrays)
    unknown = len(arrays) < len(inputs)
    if unknown or not small or node.op_type not in _ARITHMETIC or node.domain:
        return None
    if node.op_type == "ConstantOfShape" and prod(arrays[0]) > _SMALL:
        return None
    found = known.evaluate(node, arrays, draft.opset)
    if found is None or (found.dtype.kind == "f" and found.size > _SMALL):
        return None
    return Value(found.shape, found, tensor=node.output[0])


def _sizes(draft: Draft, node: onnx.NodeProto) -> Value | None:
    """Evaluate shape arithmetic that only passes sizes on."""
    values = _inputs(draft, node)
    arrays = [None if v is None else v.array for v in values]
    if not any(a is not None and a.dtype == object for a in arrays):
        return None
    if any(v is not None and v.places for v in values):
        return None
    found = known.of_sizes(node, arrays)
    return None if found is None else Value(found.shape, found, tensor=node.output[0])


def _by_rule(draft: Draft, node: onnx.NodeProto) -> Value | None:
    """Rewrite a node that makes or takes tensors with one value per selected element."""
    rule = rules.RULES.get(node.op_type)
    values = [v for v in _inputs(draft, node) if v is not None]
    if rule is None or len(values) < sum(map(bool, node.input)):
        return None
    if not any(v.places for v in values) and node.op_type not in rules.MAKERS:
        return None
    try:
        return rule(draft, node, values)
    except Lost:
        return None
