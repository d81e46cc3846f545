"""Finds the source operators of each node of an ONNX graph that a runtime or simplifier optimised.

Fused nodes mostly keep the name of the last tensor that they compute, and their inputs; the nodes
between the two in the model's graph were fused.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.prepared import operators

if TYPE_CHECKING:
    import onnx

_VIEWS = ("ReorderInput", "ReorderOutput", "Reshape")
"""Nodes that optimisers add around the nodes they change; they compute nothing."""


_SIZES = ("Shape", "Size")
"""They read no values, so the nodes that computed these are not part of their result."""
_CONVOLUTIONS = ("Conv", "FusedConv")
_SUM = 3
"""The input of a convolution that is added to its result, in ONNX Runtime's own operators."""


class SourceGraph:
    """The graph that all runtimes are given, with the operators that each node represents."""

    def __init__(self, folder: Path) -> None:
        import onnx

        self.named = operators.read(folder).onnx
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
        self.nodes: dict[str, onnx.NodeProto] = {
            node.name: node for node in graph.node if node.name
        }
        self._order = {name: index for index, name in enumerate(self.nodes)}
        self.maker: dict[str, onnx.NodeProto] = {
            tensor: node for node in graph.node for tensor in node.output if tensor
        }
        self.users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for tensor in node.input:
                self.users.setdefault(tensor, []).append(node)
        self.weights = {value.name for value in graph.initializer}
        self.given = self.weights | {value.name for value in graph.input}

    def operators_of(self, nodes: Iterable[onnx.NodeProto]) -> tuple[str, ...]:
        """Return the operators that some of its nodes compute."""
        names = sorted({node.name for node in nodes}, key=lambda n: self._order.get(n, 0))
        return tuple(dict.fromkeys(op for name in names for op in self.named.get(name, ())))

    def find(self, name: str) -> onnx.NodeProto | None:
        """Return the node of this name, or the one that makes the tensor of this name.

        Runtimes append to names (`conv1/WithoutBiases`, `relu_nchwc`): the longest known beginning
        counts, up to such a separator.
        """
        while name:
            node = self.nodes.get(name) or self.maker.get(name)
            if node is not None:
                return node
            cut = max(name.rfind("/"), name.rfind("_"))
            name = name[:cut] if cut > 0 else ""
        return None

    def between(self, tensor: str, stops: set[str]) -> list[onnx.NodeProto]:
        """Return the nodes that make `tensor` from the `stops`."""
        found: dict[int, onnx.NodeProto] = {}
        waiting = [tensor]
        while waiting:
            node = self.maker.get(waiting.pop())
            if node is None or id(node) in found:
                continue
            found[id(node)] = node
            if node.op_type not in _SIZES:
                waiting += [t for t in node.input if t not in stops]
        return list(found.values())


def match(optimised: Iterable[onnx.NodeProto], source: SourceGraph) -> dict[str, tuple[str, ...]]:
    """Return the source operators of each node of an optimised graph (in order), by its name."""
    value = {tensor: tensor for tensor in source.given}
    found: dict[str, tuple[str, ...]] = {}
    for node in optimised:
        inputs = {value[t] for t in node.input if t in value}
        known = set(value.values())
        covered: list[onnx.NodeProto] = []
        for tensor in node.output:
            result = tensor if tensor in source.maker else _result(node, inputs, known, source)
            if result is None:
                continue
            if result not in known:
                covered += source.between(result, known)
            value[tensor] = result
        found[node.name] = source.operators_of(covered)
    return found


def _result(
    node: onnx.NodeProto, inputs: set[str], known: set[str], source: SourceGraph
) -> str | None:
    """Return the source tensor that a node with a generated output name computes.

    The search starts at the node it is named after, and continues while inputs are unused (a bias
    or an addition was fused) and to the activation that the node says it applies.
    """
    activations = inputs - source.weights
    if node.op_type in _VIEWS and len(activations) == 1:
        return next(iter(activations))
    start = source.find(node.name.removesuffix("_nchwc"))
    if start is None or not start.output:
        return None
    tensor = str(start.output[0])
    if node.op_type in _CONVOLUTIONS and len(node.input) > _SUM and node.input[_SUM]:
        tensor = _next(tensor, source, op_type="Add")
    while unused := inputs - _used(tensor, known, source):
        following = _next(tensor, source, reads=unused)
        if following == tensor:
            break
        tensor = following
    activation = next((a.s.decode() for a in node.attribute if a.name == "activation"), None)
    maker = source.maker.get(tensor)
    if activation and maker is not None and maker.op_type != activation:
        tensor = _next(tensor, source, op_type=activation)
    return tensor


def _next(
    tensor: str, source: SourceGraph, *, op_type: str | None = None, reads: set[str] | None = None
) -> str:
    """Return the output of the one user of `tensor` with this type, or that also reads these."""
    users = source.users.get(tensor, [])
    if op_type is not None:
        users = [user for user in users if user.op_type == op_type]
    if reads is not None:
        users = [user for user in users if reads & set(user.input)]
    return str(users[0].output[0]) if len(users) == 1 else tensor


def _used(tensor: str, known: set[str], source: SourceGraph) -> set[str]:
    return {t for node in source.between(tensor, known) for t in node.input}
