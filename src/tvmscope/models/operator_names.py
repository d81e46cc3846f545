"""Names the operators of a torch program, and finds them again in its ONNX export.

A name is a module's path and the operator it runs, `layer1.0.relu@1/relu`; `@1` marks the module's
second call. It is stored on the program's nodes, where it survives saving and decomposition.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

STAMP = "tvmscope"


def stamp(program: Any, wrappers: int = 0) -> tuple[str, ...]:
    """Name every operator of an exported program; ignore `wrappers` adapters around it."""
    seen: Counter[str] = Counter()
    names = []
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        base = _base_name(node, wrappers)
        name = f"{base}_{seen[base]}" if seen[base] else base
        seen[base] += 1
        node.meta["custom"] = {**(node.meta.get("custom") or {}), STAMP: name}
        names.append(name)
    return tuple(names)


def _base_name(node: Any, wrappers: int) -> str:
    target = getattr(node.target, "__name__", str(node.target)).split(".")[0].rstrip("_")
    stack = list((node.meta.get("nn_module_stack") or {}).items())
    if not stack:
        return str(target)
    key, (path, _) = stack[-1]
    path = str(path).removeprefix("L['self']").lstrip(".")
    for _ in range(wrappers):
        path = path.removeprefix("module").lstrip(".")
    _, at, call = str(key).rpartition("@")
    if not path:
        return str(target)
    return f"{path}@{call}/{target}" if at and call.isdigit() else f"{path}/{target}"


def of_onnx_nodes(exported: Any) -> dict[str, tuple[str, ...]]:
    """Return which named operators each node of an ONNX export computes.

    A node refers to its origin in the decomposed program. Operators that no ONNX node mentions were
    merged into one that uses them (batch norm into the convolution before it).
    """
    nodes = {n.name: n for n in exported.exported_program.graph.nodes if n.op == "call_function"}
    mentioned: dict[str, list[str]] = {}
    for node in exported.model.graph:
        text = node.metadata_props.get("pkg.torch.onnx.fx_node", "")
        source = text.partition(" ")[0].removeprefix("%").rstrip(":")
        if node.name and source in nodes:
            mentioned.setdefault(source, []).append(node.name)
    kept = {_stamp(nodes[name]) for name in mentioned}
    found: dict[str, dict[str, None]] = {}
    for name, node in nodes.items():
        stamped = _stamp(node)
        owners = {name} & mentioned.keys()
        if not owners and stamped not in kept:
            owners = _first_users(node, mentioned)
        if len(owners) == 1 and stamped:  # an operator merged into several (dropout) has no effect
            for onnx_node in mentioned[owners.pop()]:
                found.setdefault(onnx_node, {})[stamped] = None
    return {name: tuple(stamps) for name, stamps in found.items()}


def _stamp(node: Any) -> str:
    return str((node.meta.get("custom") or {}).get(STAMP, ""))


def _first_users(node: Any, mentioned: dict[str, list[str]]) -> set[str]:
    """Return the nearest nodes after this one that have an ONNX node."""
    found: set[str] = set()
    waiting, seen = list(node.users), set()
    while waiting:
        user = waiting.pop()
        if user.name in seen:
            continue
        seen.add(user.name)
        if user.name in mentioned:
            found.add(user.name)
        else:
            waiting += user.users
    return found
