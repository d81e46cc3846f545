"""Assignments to masks in ONNX, from sizes that are known at run time only to fixed ones.

    ScatterND(x, Transpose(NonZero(mask)), Expand(v, [count]))  -> Where(mask, v, x)
    ScatterND(x, ..., f(GatherND(y, ...)))                      -> Where(mask, f(y), x)
    ScatterND(x, ..., Slice(v, 0, count))                       -> Where(mask, v[chosen before], x)

A tensor that has an element for each chosen place gets one for every place of the mask instead;
only the chosen ones count, and only the scatter at the end has to know which those are. It is done
for a mask where all that is computed from its places is understood and ends in such scatters; any
other NonZero stays as it is. Where each chosen place takes the next one of some values, whether
there are as many as chosen places is seen at run time; those places are NaN where there are not.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvmscope.compiler.frontends import onnx_mask_rules as rules
from tvmscope.compiler.frontends import onnx_places as known
from tvmscope.compiler.frontends.onnx_places import FLOATS, Lost, Places, Value

_ARITHMETIC = (
    "Constant", "Concat", "Gather", "Unsqueeze", "Squeeze", "Slice", "Cast", "Identity", "Add",
    "Sub", "Mul", "Equal", "Where", "ConstantOfShape", "Reshape", "Transpose", "Shape",
)  # fmt: skip
"""What is computed with shapes."""
_SMALL = 64
"""Elements of what may be a shape; larger constants are not computed with."""
_MOST_BYTES = 2**31 - 1
"""Of a model that shapes can be inferred of."""


def fix_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its assignments to masks in fixed sizes; itself where there are none."""
    nodes = model.graph.node
    nested = any(a.HasField("g") or a.graphs for node in nodes for a in node.attribute)
    if nested or not {"NonZero", "ScatterND"} <= {node.op_type for node in nodes}:
        return model
    if model.ByteSize() > _MOST_BYTES:
        return model
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:  # the importer says what is wrong with it
        return model
    left: set[str] = set()
    while True:
        try:
            made = Walk(inferred, left).rewritten()
            return model if made is None else made
        except Lost as e:
            left.add(str(e))


class Walk:
    """Once through the nodes; fails with the first mask that has to stay as it is."""

    def __init__(self, model: onnx.ModelProto, left: set[str]) -> None:
        self.model, self.left = model, left
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        self.types = {v.name: v.type.tensor_type for v in infos}
        self.constants = {t.name: t for t in model.graph.initializer}
        self.maker = {name: node for node in model.graph.node for name in node.output}
        self.values: dict[str, Value] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[TensorProto] = []

    def rewritten(self) -> onnx.ModelProto | None:
        """The new model, or None where there is nothing to rewrite."""
        for node in self.model.graph.node:
            value = self._sizes(node) or self._by_rule(node) or self._plain(node)
            if value is not None:
                self.values[node.output[0]] = value
        for output in self.model.graph.output:
            self._must_be_real(output.name)
        if not self.added:
            return None
        made = onnx.ModelProto()
        made.CopyFrom(self.model)
        needed, kept = {o.name for o in made.graph.output}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed.update(node.input)
        held = [t for t in (*self.model.graph.initializer, *self.added) if t.name in needed]
        del made.graph.node[:], made.graph.initializer[:], made.graph.value_info[:]
        made.graph.node.extend(reversed(kept))
        made.graph.initializer.extend(held)
        return made

    # ---- what is known of a tensor ---------------------------------------------------------------

    def value(self, name: str) -> Value | None:
        """A tensor of a fixed shape; constants with their elements, unless they are weights."""
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            tensor = self.constants[name]
            array = None if tensor.data_type in FLOATS else numpy_helper.to_array(tensor)
            return self.values.setdefault(name, Value(tuple(tensor.dims), array))
        kind = self.types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(d.HasField("dim_value") for d in kind.shape.dim):
            return None
        return Value(tuple(d.dim_value for d in kind.shape.dim))

    def dtype(self, name: str) -> int:
        """The element type of a tensor, 0 where it is not known."""
        if name in self.constants:
            return self.constants[name].data_type
        return self.types[name].elem_type if name in self.types else 0

    def _must_be_real(self, name: str) -> None:
        value = self.values.get(name)
        if value is not None and value.mask is not None:
            raise Lost(value.mask)

    # ---- node by node ----------------------------------------------------------------------------

    def _inputs(self, node: onnx.NodeProto) -> list[Value | None]:
        return [self.value(name) for name in node.input if name]

    def _plain(self, node: onnx.NodeProto) -> Value | None:
        """A node that has nothing to do with masks; its result where it may be part of a shape."""
        for name in node.input:
            self._must_be_real(name)
        self.nodes.append(node)
        arrays = [None if v is None else v.array for v in self._inputs(node)]
        small = all(a is not None and a.size <= _SMALL and a.dtype != object for a in arrays)
        if not small or node.op_type not in _ARITHMETIC or node.domain:
            return None
        if node.op_type == "ConstantOfShape" and prod(arrays[0]) > _SMALL:  # type: ignore[arg-type]
            return None
        found = known.evaluate(node, arrays, self.opset)
        return None if found is None else Value(found.shape, found)

    def _sizes(self, node: onnx.NodeProto) -> Value | None:
        """Arithmetic with shapes that passes sizes on, whatever they are."""
        arrays = [None if v is None else v.array for v in self._inputs(node)]
        if not any(a is not None and a.dtype == object for a in arrays):
            return None
        found = known.of_sizes(node, arrays)
        if found is None:
            return None
        self.nodes.append(node)
        return Value(found.shape, found)

    def _by_rule(self, node: onnx.NodeProto) -> Value | None:
        """A node that makes or takes tensors with an element for each place."""
        values, rule = self._inputs(node), rules.RULES.get(node.op_type)
        held = next((v.places for v in values if v is not None and v.places), None)
        if rule is None or (held is None and node.op_type not in rules.MAKERS):
            return None
        given = [v for v in values if v is not None]
        if len(given) == len(values):
            return rule(self, node, given)
        if held is not None:
            raise Lost(held.mask)
        return None

    # ---- what is written -------------------------------------------------------------------------

    def constant(self, numbers: tuple[int, ...] | float, like: str) -> str:
        """New numbers, named after a tensor that they are for: sizes, or a float32."""
        name = f"{like}/fixed{len(self.added)}"
        dtype = np.float32 if isinstance(numbers, float) else np.int64
        self.added.append(numpy_helper.from_array(np.asarray(numbers, dtype), name))
        return name

    def emit(self, kind: str, like: str, *inputs: str, **attributes: Any) -> str:
        """A new node, named after a tensor that it is for."""
        name = f"{like}/{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def replace(self, node: onnx.NodeProto, kind: str, *inputs: str) -> None:
        """Another node in place of this one."""
        self.nodes.append(helper.make_node(kind, inputs, node.output, node.name))

    def reshaped(self, tensor: str, shape: tuple[int, ...], like: str) -> str:
        return self.emit("Reshape", like, tensor, self.constant(shape, like))

    def chosen(self, places: Places, shape: tuple[int, ...], like: str) -> str:
        """The mask in a shape that has one axis of places."""
        mask = self.value(places.tensor)
        if mask is None or prod(mask.shape) != places.size:
            raise Lost(places.mask)
        tensor = places.tensor
        if self.dtype(tensor) != TensorProto.BOOL:
            tensor = self.emit("Cast", like, tensor, to=TensorProto.BOOL)
        return tensor if mask.shape == shape else self.reshaped(tensor, shape, like)

    def picked(self, tensor: str, axis: int, places: Places, like: str, *, exactly: bool) -> str:
        """Of values one after the other along an axis: for each place the one that is next.

        NaN where there are not exactly as many as chosen places, or not enough.
        """
        value = self.value(tensor)
        if value is None or value.places or value.mask or not value.shape[axis]:
            raise Lost(places.mask)
        size, mask = value.shape[axis], self.chosen(places, (places.size,), like)
        numbers = self.emit("Cast", like, mask, to=TensorProto.INT64)
        before = self.emit("CumSum", like, numbers, self.constant(0, like), exclusive=1)
        if size < places.size:
            before = self.emit("Min", like, before, self.constant(size - 1, like))
        found = self.emit("Gather", like, tensor, before, axis=axis)
        if not exactly and size >= places.size:
            return found
        dtype = self.dtype(tensor)
        if dtype not in FLOATS:
            raise Lost(places.mask)
        count = self.emit("ReduceSum", like, numbers, keepdims=0)
        test = "Equal" if exactly else "LessOrEqual"
        right = self.emit(test, like, count, self.constant(size, like))
        nothing = self.emit("Cast", like, self.constant(np.nan, like), to=dtype)
        return self.emit("Where", like, right, found, nothing)
