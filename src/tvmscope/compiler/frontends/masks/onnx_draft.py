"""An ONNX graph whose assignments to masks are being rewritten: known values, new nodes.

The old nodes stay beside the new ones until all are known; then unused nodes are removed.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvmscope.compiler.frontends.masks.onnx_places import FLOATS, Array, Lost, Places, Value


class Draft:
    """The graph of a model, its new nodes, and the known values of its tensors."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        self.types = {v.name: v.type.tensor_type for v in infos}
        self.constants = {t.name: t for t in model.graph.initializer}
        self.maker = {name: node for node in model.graph.node for name in node.output}
        self.values: dict[str, Value] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[TensorProto] = []
        self.replaced: set[str] = set()
        self.like = ""
        """The tensor after which the next new nodes are named."""

    def finished(self) -> onnx.ModelProto | None:
        """Return the new model, or None if nothing was replaced."""
        if not self.replaced:
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

    # ---- known values of tensors -----------------------------------------------------------------

    def value(self, name: str) -> Value | None:
        """Return a tensor of a fixed shape; a constant has its elements, unless it is a weight."""
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            tensor = self.constants[name]
            array = None if tensor.data_type in FLOATS else numpy_helper.to_array(tensor)
            return self.values.setdefault(name, Value(tuple(tensor.dims), array, tensor=name))
        kind = self.types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        if not all(d.HasField("dim_value") for d in kind.shape.dim):
            return None
        return Value(tuple(d.dim_value for d in kind.shape.dim), tensor=name)

    def dtype(self, name: str) -> int:
        """Return the element type of a tensor, 0 if it is not known."""
        if name in self.constants:
            return int(self.constants[name].data_type)
        return int(self.types[name].elem_type) if name in self.types else 0

    # ---- new nodes -------------------------------------------------------------------------------

    def constant(self, numbers: Array | tuple[int, ...] | float) -> str:
        """Add a constant: sizes, coordinates, or a float32."""
        name = f"{self.like}/constant{len(self.added)}"
        dtype = np.float32 if isinstance(numbers, float) else np.int64
        self.added.append(numpy_helper.from_array(np.asarray(numbers, dtype), name))
        return name

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, named after the output of the node that it helps to replace."""
        name = f"{self.like}/{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def again(self, node: onnx.NodeProto, values: list[Value]) -> str:
        """Add a copy of the node with these inputs."""
        made, names = onnx.NodeProto(), (v.tensor for v in values)
        made.CopyFrom(node)
        made.input[:] = [next(names) if name else "" for name in node.input]
        name = made.name = made.output[0] = f"{self.like}/{node.op_type}{len(self.nodes)}"
        self.nodes.append(made)
        return name

    def replace(self, node: onnx.NodeProto, kind: str, *inputs: str) -> None:
        """Replace this node by another one."""
        self.nodes.append(helper.make_node(kind, inputs, node.output, node.name))
        self.replaced.add(node.output[0])

    def reshaped(self, tensor: str, shape: tuple[int, ...]) -> str:
        return self.emit("Reshape", tensor, self.constant(shape))

    def chosen(self, places: Places, shape: tuple[int, ...]) -> str:
        """Return the mask in a shape that has one axis for its elements."""
        mask = self.value(places.tensor)
        if mask is None or prod(mask.shape) != places.size:
            raise Lost
        tensor = places.tensor
        if (dtype := self.dtype(tensor)) != TensorProto.BOOL:  # NaN is not zero either
            zero = self.emit("Cast", self.constant(0), to=dtype)
            tensor = self.emit("Not", self.emit("Equal", tensor, zero))
        return tensor if mask.shape == shape else self.reshaped(tensor, shape)

    def picked(self, value: Value, axis: int, places: Places, *, exactly: bool) -> Value:
        """Return for each element of a mask the next one of the values along an axis.

        The result is NaN if the number of values differs from the number of selected elements, or
        (where `exactly` is False) is smaller.
        """
        size, dtype = value.shape[axis], self.dtype(value.tensor)
        enough = not exactly and size >= places.size
        if not size or not (enough or dtype in FLOATS):
            raise Lost
        numbers = self.emit("Cast", self.chosen(places, (places.size,)), to=TensorProto.INT64)
        before = self.emit("CumSum", numbers, self.constant(0), exclusive=1)
        if size < places.size:
            before = self.emit("Min", before, self.constant(size - 1))
        found = self.emit("Gather", value.tensor, before, axis=axis)
        if not enough:
            count = self.emit("ReduceSum", numbers, keepdims=0)
            test = "Equal" if exactly else "LessOrEqual"
            right = self.emit(test, count, self.constant(size))
            nothing = self.emit("Cast", self.constant(np.nan), to=dtype)
            found = self.emit("Where", right, found, nothing)
        shape = (*value.shape[:axis], places.size, *value.shape[axis + 1 :])
        return Value(shape, None, places, axis, found)
