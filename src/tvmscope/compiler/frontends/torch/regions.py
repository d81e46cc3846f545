"""Cuts the nodes without a converter out of an exported program: each region is one call.

Nodes get levels: compiled ones even, others odd, no lower than those of the nodes they read from.
The others of one level form one region, the largest with no compiled node between its parts.
"""

from __future__ import annotations

import hashlib
import io
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tvmscope.core.artifact import FALLBACK, Fallback
from tvmscope.messages import Text

_CHECKS = ("_assert_async", "_assert_scalar", "sym_constrain_range", "_assert_tensor_metadata")
"""Operators that compute nothing, by the beginning of their names."""


@dataclass(frozen=True)
class Region:
    """Nodes that run in PyTorch, with their inputs and outputs."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    part: Fallback
    content: bytes
    level: int


def source_name(node: Node) -> str:
    """Return the source operator of a decomposed node, by its name when the model was prepared."""
    return str((node.meta.get("custom") or {}).get("tvmscope") or node.name)


def dtype_name(value: torch.Tensor) -> str:
    """Return the type's name in TVM."""
    return str(value.dtype).removeprefix("torch.")


def fixed_shape(value: Any) -> tuple[int, ...] | None:
    """Return a tensor's sizes; None if TVM has no such tensor, or a size is not known yet."""
    if not isinstance(value, torch.Tensor) or value.dtype.is_complex:
        return None
    if not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def planned(nodes: Sequence[Node], regions: Sequence[Region]) -> Iterator[Node | Region]:
    """Yield nodes and regions in an order in which each follows its inputs."""
    inside = {node for region in regions for node in region.nodes}
    levels = _levels(nodes, inside)
    rows: list[tuple[int, int, Node | Region]] = [
        (levels[node], index, node)
        for index, node in enumerate(nodes)
        if node.op == "call_function" and node not in inside and not _checks(node)
    ]
    rows += [(region.level, -1, region) for region in regions]
    for _, _, step in sorted(rows, key=lambda row: row[:2]):
        yield step


def cut(program: torch.export.ExportedProgram, refused: Mapping[Node, Text]) -> tuple[Region, ...]:
    """Group these nodes, and those that must run with them, into regions."""
    nodes = [n for n in program.graph.nodes if n.op == "call_function" and not _checks(n)]
    reasons = _with_neighbours(nodes, dict(refused))
    while between := _between(nodes, reasons):
        reasons = _with_neighbours(nodes, reasons | between)
    levels = _levels(program.graph.nodes, reasons.keys())
    numbers = sorted({levels[node] for node in reasons})
    return tuple(
        _region(
            program, [n for n in nodes if n in reasons and levels[n] == number], reasons, number
        )
        for number in numbers
    )


def _checks(node: Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return not node.users and name.startswith(_CHECKS)


def _with_neighbours(nodes: Sequence[Node], reasons: dict[Node, Text]) -> dict[Node, Text]:
    """Add nodes that exchange a value with these that is not a tensor of known size."""
    changed = True
    while changed:
        changed = False
        for node in nodes:
            for maker in node.all_input_nodes:
                if maker.op != "call_function" or fixed_shape(maker.meta.get("val")) is not None:
                    continue
                if (node in reasons) != (maker in reasons):
                    new, old = (node, maker) if maker in reasons else (maker, node)
                    reasons[new] = reasons[old]
                    changed = True
    return reasons


def _joined(nodes: Sequence[Node], refused: Any) -> dict[Node, int]:
    """A number for each of these nodes, the same for those that exchange sizes known at run time.

    Such nodes must be in one region: each region is exported with the sizes of its inputs.
    """
    numbers = {node: n for n, node in enumerate(nodes) if node in refused}
    members = {n: [node] for node, n in numbers.items()}
    for node in numbers:
        for maker in node.all_input_nodes:
            if maker not in numbers or fixed_shape(maker.meta.get("val")) is not None:
                continue
            mine, other = numbers[node], numbers[maker]
            if mine != other:
                for moved in (found := members.pop(mine)):
                    numbers[moved] = other
                members[other] += found
    return numbers


def _between(nodes: Sequence[Node], reasons: Mapping[Node, Text]) -> dict[Node, Text]:
    """Compiled nodes on a path from such a group of nodes back into it: they must go along."""
    numbers = _joined(nodes, reasons)
    why = {number: reasons[node] for node, number in numbers.items()}
    bits = {number: 1 << n for n, number in enumerate(why)}
    own = {node: bits[number] for node, number in numbers.items()}
    after, before = dict[Node, int](), dict[Node, int]()
    for node in nodes:
        after[node] = own.get(node, 0)
        for source in node.all_input_nodes:
            after[node] |= after.get(source, 0)
    for node in reversed(nodes):
        before[node] = own.get(node, 0)
        for user in node.users:
            before[node] |= before.get(user, 0)
    found = {}
    for node in nodes:
        both = after[node] & before[node]
        if both and node not in reasons:
            found[node] = next(why[number] for number, bit in bits.items() if both & bit)
    return found


def _levels(nodes: Any, refused: Any) -> dict[Node, int]:
    """Of each node; joined ones have the level of the highest of them."""
    calls = [node for node in nodes if node.op == "call_function"]
    numbers = _joined(calls, refused)
    least_of: dict[int, int] = {}
    levels: dict[Node, int] = {}
    changed = True
    while changed:
        changed = False
        for node in calls:
            least = max((levels.get(source, 0) for source in node.all_input_nodes), default=0)
            level = least + (least % 2 != (node in refused))
            group = numbers.get(node)
            if group is not None:
                level = max(level, least_of.get(group, 0))
                changed = changed or level > least_of.get(group, 0)
                least_of[group] = level
            levels[node] = level
    return levels


def _region(
    program: torch.export.ExportedProgram,
    nodes: Sequence[Node],
    reasons: Mapping[Node, Text],
    level: int,
) -> Region:
    inside, held = set(nodes), _held(program)
    read = dict.fromkeys(s for node in nodes for s in node.all_input_nodes if s not in inside)
    inputs = tuple(s for s in read if s.op != "get_attr" and s.name not in held)
    outputs = tuple(
        node
        for node in nodes
        if isinstance(node.meta.get("val"), torch.Tensor)
        and any(user not in inside and not _checks(user) for user in node.users)
    )
    module = _module(program, nodes, inputs, outputs, [s for s in read if s not in inputs], held)
    examples = tuple(
        torch.zeros(tuple(n.meta["val"].shape), dtype=n.meta["val"].dtype) for n in inputs
    )
    with torch.no_grad():
        exported = torch.export.export(module, examples, strict=False)
    stream = io.BytesIO()
    torch.export.save(exported, stream)
    content = stream.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    named = dict.fromkeys(source_name(n) for n in nodes if n.target is not operator.getitem)
    part = Fallback(
        name=f"{FALLBACK}region_{digest[:16]}",
        framework="torch",
        operators=tuple(named),
        reason=next(reasons[node] for node in nodes),
        digest=digest,
        fixed=all(fixed_shape(node.meta["val"]) is not None for node in outputs),
    )
    return Region(tuple(nodes), inputs, outputs, part, content, level)


def _held(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Return weights, buffers and constants by the name of their placeholder."""
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    stored = {**program.state_dict, **program.constants}
    return {
        spec.arg.name: stored[str(spec.target)]
        for spec in program.graph_signature.input_specs
        if spec.kind is not kind
    }


def _module(
    program: torch.export.ExportedProgram,
    nodes: Sequence[Node],
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    constants: Sequence[Node],
    held: Mapping[str, torch.Tensor],
) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    attributes: dict[str, Any] = {}
    for node in inputs:
        made[node] = graph.placeholder(node.name)
    for node in constants:
        value = (
            held[node.name]
            if node.name in held
            else getattr(program.graph_module, str(node.target))
        )
        attributes[node.name] = value.detach() if isinstance(value, torch.Tensor) else value
        made[node] = graph.get_attr(node.name)
    for node in nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in outputs))
    return GraphModule(attributes, graph)
