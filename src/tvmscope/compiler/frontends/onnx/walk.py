"""Walks an ONNX graph node by node: our converters first, then TVM's; control flow is unrolled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from tvmscope.compiler.frontends.masks.onnx_places import evaluate
from tvmscope.compiler.frontends.onnx.converters import CONVERTERS
from tvmscope.compiler.frontends.onnx.converters.node import (
    Array,
    Node,
    array_of,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.onnx.regions import DOMAIN as REGION
from tvmscope.compiler.frontends.onnx.regions import described
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.core.artifact import Fallback
from tvmscope.errors import one_line
from tvmscope.messages import Text, msg, msgn

DOMAINS = ("", "ai.onnx")
_MOST_STEPS = 64
"""A loop with more steps than this is not unrolled."""
_SMALL = 64
"""Largest number of elements of a shape; larger constants are left to the compiler."""
_ARITHMETIC = frozenset(
    (
        "Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div",
        "Equal", "Expand", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less",
        "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceProd",
        "ReduceSum", "ReduceMax", "ReduceMin", "Reshape", "Size", "Slice", "Sqrt", "Squeeze", "Sub",
        "Transpose", "Unsqueeze", "Where", "Shape", "Tile", "Pow", "Abs", "Sign", "ScatterElements",
        "GatherElements", "GatherND", "ScatterND", "Flatten", "Xor", "Round",
    )
)  # fmt: skip
"""Operators that shape arithmetic consists of; for small constants they are evaluated at once."""


class Walker(onnx_frontend.ONNXGraphImporter):
    """TVM's importer with our converters; each node's result is bound at once and remembered."""

    def __init__(
        self,
        operators: Mapping[str, tuple[str, ...]],
        shapes: Mapping[str, Sequence[int]],
        fixed: Mapping[str, Array],
        kinds: Mapping[str, onnx.TypeProto],
        regions: Mapping[str, tuple[Fallback, bytes]] | None = None,
    ) -> None:
        super().__init__({name: list(shape) for name, shape in shapes.items()}, {})
        self._nodes: dict[str, Any] = {}
        self.operators = operators
        self.fixed = fixed
        self.kinds = kinds
        self.regions = regions
        """None in a walk that only checks which nodes cannot be converted."""
        self.refused: dict[str, Text] = {}
        self._depth = 0
        self.owned: list[tuple[relax.Expr, tuple[str, ...]]] = []
        self.nodes: list[str] = []
        self.failing = ""
        self.wanted: frozenset[str] = frozenset()

    def from_onnx(self, graph: onnx.GraphProto, opset: int) -> tvm.IRModule:
        """Return the module; it is one dataflow block, because both branches are computed."""
        self.opset = opset
        self.wanted = frozenset(value.name for value in graph.output)
        self._parse_graph_input(graph)
        parameters = [v for v in self._inputs.values() if isinstance(v, relax.Var)]
        for name, value in self.fixed.items():
            self._nodes[name] = relax.const(value, str(value.dtype))
        self._parse_graph_initializers(graph)
        with self.bb.function("main", params=parameters):
            with self.bb.dataflow():
                self._construct_nodes(graph)
                values = [self._output(value.name) for value in graph.output]
                outputs = values[0] if len(values) == 1 else relax.Tuple(values)
                result = self.bb.emit_output(outputs)
            self.bb.emit_func_output(result)
        module = self.bb.get()
        module["main"] = module["main"].with_attrs({"num_input": len(parameters)})
        return module

    def _output(self, name: str) -> relax.Expr:
        value: relax.Expr = self._nodes[name]
        if value is _NO_TENSOR:
            raise Unsupported(msg("output '{name}' is not a tensor", name=name))
        if not isinstance(getattr(value, "ty", None), relax.TensorType):
            raise Unsupported(msg("output '{name}' is not a tensor", name=name))
        return value

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            self._construct(node)

    def _construct(self, node: onnx.NodeProto) -> None:
        name = node.name or f"#{len(self.owned)}"
        self.failing = f"{node.op_type} '{name}'"
        inputs = onnx_frontend.onnx_input([self._nodes[i] if i else None for i in node.input])
        results = self._results_or_stand_ins(node, inputs)
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._nodes[output] = result
        if sum(map(bool, node.output)) and len(results) < len(node.output):
            raise _incomplete(len(results))
        self.nodes.append(name)
        owner = self.operators.get(name, (f"{name}/{node.op_type}",))
        self.owned.append((relax.Tuple([r for r in results if isinstance(r, relax.Expr)]), owner))

    def _results_or_stand_ins(self, node: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
        """Convert a node; in a walk that only checks, record one that cannot be converted."""
        if self.regions is not None or self._depth:
            return self._results(node, inputs)
        try:
            if any(value is _NO_TENSOR for value in inputs):
                raise Unsupported(msg("it reads something that is not a tensor"))
            results = self._results(node, inputs)
            if len(results) < len(node.output):
                raise _incomplete(len(results))
        except Exception as e:  # converters raise everything from KeyError to TVM's own errors
            self.refused[node.name] = one_line(e)
            return [self._stand_in(name) for name in node.output]
        return results

    def _stand_in(self, name: str) -> Any:
        found = described(self.kinds, name)
        if found is None:
            return _NO_TENSOR
        return self.bb.emit(relax.op.call_pure_packed("stand_in", ty_args=_type(*found)))

    def _region(self, node: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
        """Emit one call of a framework."""
        part, _ = (self.regions or {})[node.name]
        kinds = [_type(*self._described(name)) for name in node.output]
        if part.fixed:
            call = relax.op.call_dps_packed(part.name, relax.Tuple(inputs), kinds)
        else:
            whole = kinds[0] if len(kinds) == 1 else relax.TupleType(kinds)
            call = relax.op.call_pure_packed(part.name, *inputs, ty_args=whole)
        return self._fields("", self.bb.emit(call))

    def _described(self, name: str) -> tuple[str, list[int] | int]:
        found = described(self.kinds, name)
        if found is None:
            raise Unsupported(msg("output '{name}' is not a tensor", name=name))
        return found

    def _results(self, node: onnx.NodeProto, inputs: list[Any]) -> list[Any]:
        if node.domain == REGION:
            return self._region(node, inputs)
        if node.domain not in DOMAINS:
            raise Unsupported(msg("operator of {domain}", domain=node.domain))
        attributes = {a.name: _attribute(a) for a in node.attribute}
        match node.op_type:
            case "If":
                return self._if(inputs[0], attributes)
            case "Loop":
                return self._loop(inputs, attributes["body"])
            case "Scan":
                return self._scan(inputs, attributes)
        folded = self._folded(node, inputs)
        if folded is not None:
            return [relax.const(folded, str(folded.dtype))]
        attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
        return self._fields(
            node.op_type, self._convert_operator(node.op_type, inputs, attributes, self.opset)
        )

    def _folded(self, node: onnx.NodeProto, inputs: list[Any]) -> Array | None:
        """Evaluate shape arithmetic; a result that the model returns is left to the compiler."""
        if node.op_type not in _ARITHMETIC or not self.wanted.isdisjoint(node.output):
            return None
        arrays = [array_of(value) for value in inputs if value is not None]
        if any(a is None or a.size > _SMALL for a in arrays):
            return None
        first = arrays[0] if arrays else None
        if node.op_type == "ConstantOfShape" and first is not None and first.prod() > _SMALL:
            return None
        found = evaluate(node, arrays, self.opset)
        return found if found is not None and found.size <= _SMALL else None

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        ours = CONVERTERS.get(op_name)
        result = None
        if ours is not None:
            count = attrs["tvm_custom"]["num_outputs"]
            result = ours(Node(self.bb, list(inputs), attrs, opset, count))
        if result is None:
            if op_name not in onnx_frontend._get_convert_map():
                raise Unsupported(msg("there is no converter"))
            result = super()._convert_operator(op_name, inputs, attrs, opset)
        if isinstance(result, relax.Call):
            result = self.bb.emit(result)
        return result

    def _fields(self, operator: str, result: Any) -> list[Any]:
        """Return a node's outputs one by one; a sequence is one output."""
        if operator in _SEQUENCES:
            return [result]
        if isinstance(result, relax.Tuple):
            return [self.bb.emit(f) if isinstance(f, relax.Call) else f for f in result.fields]
        if isinstance(getattr(result, "ty", None), relax.TupleType):
            count = len(result.ty.fields)
            return [self.bb.emit(relax.TupleGetItem(result, i)) for i in range(count)]
        return [result]

    # ---- control flow ---------------------------------------------------------------------------

    def _if(self, condition: relax.Expr, attributes: dict[str, Any]) -> list[Any]:
        """Convert one branch if the condition is constant; else both, and a choice between them."""
        known = array_of(condition)
        if known is not None:
            return self._inner(attributes["then_branch" if known.item() else "else_branch"], [])
        then = self._inner(attributes["then_branch"], [])
        other = self._inner(attributes["else_branch"], [])
        return [self._choice(condition, a, b) for a, b in zip(then, other, strict=True)]

    def _choice(self, condition: relax.Expr, then: Any, other: Any) -> relax.Expr:
        for value in (then, other):
            if not isinstance(getattr(value, "ty", None), relax.TensorType):
                raise Unsupported(msg("a branch gives something that is not a tensor"))
        if shape_of(then) != shape_of(other) or dtype_of(then) != dtype_of(other):
            raise Unsupported(msg("the branches give different shapes"))
        scalar = self.bb.emit(relax.op.reshape(condition, ()))
        return self.bb.emit(relax.op.where(scalar, then, other))

    def _loop(self, inputs: list[Any], body: onnx.GraphProto) -> list[Any]:
        """Unroll the steps; their number must be known."""
        limit, condition, state = inputs[0], inputs[1], list(inputs[2:])
        most = None if limit is None else array_of(limit)
        if limit is not None and most is None:
            raise Unsupported(msg("the number of steps is known at run time only"))
        steps = _MOST_STEPS + 1 if most is None else int(most.item())
        count, collected = len(state), list[list[Any]]()
        step = 0
        while step < steps:
            alive = True if condition is None else array_of(condition)
            if alive is None:
                raise Unsupported(msg("the condition is known at run time only"))
            if not np.all(alive):
                break
            if step == _MOST_STEPS:
                raise Unsupported(msg("more than {most} steps", most=_MOST_STEPS))
            given = [relax.const(np.asarray(step, np.int64), "int64")]
            given += [relax.const(np.asarray(True), "bool"), *state]
            condition, *values = self._inner(body, given)
            state, scanned = values[:count], values[count:]
            collected.append(scanned)
            step += 1
        if not collected and len(body.output) - 1 > count:
            raise Unsupported(msg("a loop without steps"))
        return state + [self._stacked([s[n] for s in collected], 0) for n in _count(collected)]

    def _scan(self, inputs: list[Any], attributes: dict[str, Any]) -> list[Any]:
        """Convert Scan (from opset 9 on) to a loop over the elements of its inputs."""
        if self.opset < 9:
            raise Unsupported(msg("Scan before opset 9"))
        body, taken = attributes["body"], int(attributes["num_scan_inputs"])
        count = len(inputs) - taken
        state, scanned = list(inputs[:count]), inputs[count:]
        made = len(body.output) - count
        axes = [
            axis % len(shape_of(value))
            for value, axis in zip(
                scanned, attributes.get("scan_input_axes", (0,) * taken), strict=True
            )
        ]
        backwards = attributes.get("scan_input_directions", (0,) * taken)
        steps = shape_of(scanned[0])[axes[0]]
        if not 0 < steps <= _MOST_STEPS:
            raise Unsupported(msgn("{count} step", "{count} steps", steps))
        collected = []
        for step in range(steps):
            given = [
                self._element(value, axis, steps - 1 - step if back else step)
                for value, axis, back in zip(scanned, axes, backwards, strict=True)
            ]
            values = self._inner(body, state + given)
            state = values[:count]
            collected.append(values[count:])
        ends = attributes.get("scan_output_axes", (0,) * made)
        reverse = attributes.get("scan_output_directions", (0,) * made)
        return state + [
            self._stacked([s[n] for s in (collected[::-1] if reverse[n] else collected)], ends[n])
            for n in range(made)
        ]

    def _element(self, value: relax.Expr, axis: int, index: int) -> relax.Expr:
        place = relax.const(np.asarray(index, np.int64), "int64")
        return self.bb.emit(relax.op.take(value, place, axis=axis))

    def _stacked(self, values: list[relax.Expr], axis: int) -> relax.Expr:
        rank = len(shape_of(values[0])) + 1
        apart = [self.bb.emit(relax.op.expand_dims(v, axis % rank)) for v in values]
        return self.bb.emit(relax.op.concat(apart, axis % rank))

    def _inner(self, graph: onnx.GraphProto, given: list[Any]) -> list[Any]:
        """Return a body's results; it sees the outer names, but its own names stay inside."""
        outside, wanted, owned = dict(self._nodes), self.wanted, len(self.owned)
        self.wanted = frozenset()
        self._depth += 1
        try:
            for value, known in zip(graph.input, given, strict=True):
                self._nodes[value.name] = known
            self._parse_graph_initializers(graph)
            self._construct_nodes(graph)
            return [self._nodes[value.name] for value in graph.output]
        finally:
            self._nodes, self.wanted = outside, wanted
            self._depth -= 1
            del self.owned[owned:], self.nodes[owned:]  # they belong to the node of this body


_SEQUENCES = frozenset(
    (
        "Optional", "OptionalGetElement", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
        "SequenceInsert", "SplitToSequence",
    )
)  # fmt: skip


_NO_TENSOR = object()
"""In a walk that only checks: the result is a sequence or an optional."""


def _incomplete(computed: int) -> Unsupported:
    return Unsupported(msg("only {computed} of its outputs are computed", computed=computed))


def _type(dtype: str, sizes: list[int] | int) -> relax.TensorType:
    if isinstance(sizes, int):
        return relax.TensorType(dtype=dtype, ndim=sizes)
    return relax.TensorType(sizes, dtype)


def _count(collected: list[list[Any]]) -> range:
    return range(len(collected[0])) if collected else range(0)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """Return the attribute as TVM's converters expect it: lists are tuples."""
    value = helper.get_attribute_value(attribute)
    return tuple(value) if isinstance(value, list) else value
