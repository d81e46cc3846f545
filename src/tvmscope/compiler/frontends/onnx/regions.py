"""Cuts the nodes without a converter out of an ONNX graph: each region becomes one node.

Nodes get levels: compiled ones even, others odd, no lower than those of the nodes they read from.
The others of one level form one region, the largest with no compiled node between its parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvmscope.core.artifact import FALLBACK, Fallback
from tvmscope.messages import Text

Array = np.ndarray[Any, Any]
DOMAIN = "tvmscope.fallback"


def cut(
    model: onnx.ModelProto, refused: Mapping[str, Text], kinds: Mapping[str, onnx.TypeProto]
) -> tuple[onnx.ModelProto, dict[str, tuple[Fallback, bytes]]]:
    """Return the model with one node per region of these nodes and their neighbours, by name."""
    graph = model.graph
    reasons = _with_neighbours(graph, dict(refused), kinds)
    levels = _levels(graph, reasons)
    regions: dict[str, tuple[Fallback, bytes]] = {}
    rows: list[tuple[int, int, onnx.NodeProto]] = []
    for level in sorted(set(levels.values())):
        inside = [(i, n) for i, n in enumerate(graph.node) if levels[i] == level]
        if level % 2 == 0:
            rows += [(level, i, n) for i, n in inside]
            continue
        node, part, content = _region(model, [n for _, n in inside], kinds, reasons)
        regions[node.name] = (part, content)
        rows.append((level, inside[0][0], node))
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(node for _, _, node in sorted(rows, key=lambda row: row[:2]))
    return changed, regions


def described(kinds: Mapping[str, onnx.TypeProto], name: str) -> tuple[str, list[int] | int] | None:
    """Return a tensor's dtype, and its sizes (its rank if some are unknown); None if unknown."""
    kind = kinds.get(name)
    if kind is None or kind.WhichOneof("value") != "tensor_type":
        return None
    tensor = kind.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    dtype = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if dtype == "object":
        return None
    known = [size for size in sizes if size is not None]
    return dtype, known if len(known) == len(sizes) else len(sizes)


def types_of(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> dict[str, onnx.TypeProto]:
    """Return the type of every tensor that can be inferred.

    ONNX knows nothing about other domains: the types of their results are observed in a run.
    """
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    kinds = {v.name: v.type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    for tensor in model.graph.initializer:
        kinds[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    made = [name for node in model.graph.node for name in node.output if name]
    missing = [n for n in made if n not in kinds or not kinds[n].WhichOneof("value")]
    if missing and any(node.domain not in ("", "ai.onnx") for node in model.graph.node):
        kinds |= _observed(model, missing, arrays)
    return kinds


def _observed(
    model: onnx.ModelProto, names: list[str], arrays: Mapping[str, Array]
) -> dict[str, onnx.TypeProto]:
    import onnxruntime as ort

    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    there = {value.name for value in wider.graph.output}
    wider.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in there)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(
        wider.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = dict(zip(names, session.run(names, dict(arrays)), strict=True))
    return {
        name: helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in found.items()
        if isinstance(value, np.ndarray)
    }


def _is_fixed(kinds: Mapping[str, onnx.TypeProto], name: str) -> bool:
    found = described(kinds, name)
    return found is not None and isinstance(found[1], list)


def _with_neighbours(
    graph: onnx.GraphProto, reasons: dict[str, Text], kinds: Mapping[str, onnx.TypeProto]
) -> dict[str, Text]:
    """Add nodes that read a size known only at run time, or exchange a value that is no tensor."""
    makers = {name: node for node in graph.node for name in node.output if name}
    changed = True
    while changed:
        changed = False
        for node in graph.node:
            for name in _reads(node):
                maker = makers.get(name)
                if maker is None or _is_fixed(kinds, name):
                    continue
                apart = (node.name in reasons) != (maker.name in reasons)
                if apart:
                    odd = described(kinds, name) is None or maker.name in reasons
                    new = node if maker.name in reasons else maker
                    if odd:
                        reasons[new.name] = reasons[maker.name if new is node else node.name]
                        changed = True
    return reasons


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    """Yield all names that a node reads, the outer names of its bodies included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {v.name for v in (*body.input, *body.initializer)}
            for inner in body.node:
                yield from (name for name in _reads(inner) if name not in own)
                own.update(inner.output)


def _levels(graph: onnx.GraphProto, refused: Mapping[str, Text]) -> dict[int, int]:
    made: dict[str, int] = {}
    levels: dict[int, int] = {}
    for index, node in enumerate(graph.node):
        least = max((made.get(name, 0) for name in _reads(node)), default=0)
        levels[index] = least + (least % 2 != (node.name in refused))
        for name in node.output:
            made[name] = levels[index]
    return levels


def _region(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    kinds: Mapping[str, onnx.TypeProto],
    reasons: Mapping[str, Text],
) -> tuple[onnx.NodeProto, Fallback, bytes]:
    graph = model.graph
    inside = {name for node in nodes for name in node.output if name}
    mine = {node.name for node in nodes}
    weights = {tensor.name: tensor for tensor in graph.initializer}
    read = list(dict.fromkeys(name for node in nodes for name in _reads(node)))
    given = [name for name in read if name not in inside and name not in weights]
    used = {v.name for v in graph.output}
    used |= {name for node in graph.node if node.name not in mine for name in _reads(node)}
    results = [name for node in nodes for name in node.output if name and name in used]
    alone = helper.make_model(
        helper.make_graph(
            nodes,
            "fallback",
            [helper.make_value_info(name, kinds[name]) for name in given],
            [helper.make_value_info(name, kinds[name]) for name in results],
            [weights[name] for name in read if name in weights],
        ),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
    content = alone.SerializeToString(deterministic=True)
    digest = hashlib.sha256(content).hexdigest()
    node = helper.make_node("Fallback", given, results, name=nodes[0].name, domain=DOMAIN)
    part = Fallback(
        name=f"{FALLBACK}region_{digest[:16]}",
        framework="onnxruntime",
        operators=tuple(f"{n.name}/{n.op_type}" for n in nodes),
        reason=next(reasons[n.name] for n in nodes if n.name in reasons),
        digest=digest,
        fixed=all(_is_fixed(kinds, name) for name in results),
    )
    return node, part, content
