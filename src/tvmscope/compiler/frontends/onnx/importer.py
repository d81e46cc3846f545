"""Imports ONNX models: checks, simplifies where it helps, then translates node by node to Relax."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import tvm
from onnx import helper
from tvm.relax.frontend.onnx import onnx_frontend

from tvmscope.compiler.describe.onnx_nodes import SourceGraph, match
from tvmscope.compiler.describe.sources import Imported, attach
from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.frontends.masks.onnx_rewrite import fix_sizes
from tvmscope.compiler.frontends.onnx.converters import CONVERTERS
from tvmscope.compiler.frontends.onnx.regions import cut, types_of
from tvmscope.compiler.frontends.onnx.specialise import deciding_inputs
from tvmscope.compiler.frontends.onnx.walk import DOMAINS, Walker
from tvmscope.core.artifact import Fallback
from tvmscope.core.model import Prepared
from tvmscope.core.prepared.outside_weights import put_back, take_out
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import Text, msg

Array = np.ndarray[Any, Any]
_SHAPE_ARITHMETIC = {"Shape", "Size", "ConstantOfShape", "Range", "NonZero", "Expand"}
_CONTROL = {"If", "Loop", "Scan"}


def import_onnx(prepared: Prepared, fallback: bool = False) -> Imported:
    """Translate `model.onnx`.

    Operators without a converter run in ONNX Runtime, or are refused with their list.
    """
    model = onnx.load(prepared.onnx_path, load_external_data=False)
    with np.load(prepared.inputs_path) as archive:
        arrays = {spec.name: archive[spec.name] for spec in prepared.model.inputs}
    source = SourceGraph(prepared.folder)
    return translate(
        model, arrays, prepared.model.name, source, fallback=fallback, folder=prepared.folder
    )


def translate(
    model: onnx.ModelProto,
    arrays: Mapping[str, Array],
    name: str,
    source: SourceGraph | None = None,
    *,
    fallback: bool = False,
    folder: Path | None = None,
) -> Imported:
    """A model in memory, with its first set of inputs; `source` knows its operators' names.

    `folder` has the files of weights that are not in the model.
    """
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            raise ImportModelError(
                msg(
                    "{model}: input '{name}' is text, which cannot be compiled; cut what reads it "
                    "off the graph",
                    model=name,
                    name=value.name,
                )
            )
    model = expanded(model)
    fixed = deciding_inputs(model.graph, arrays)
    model, remarks = simplify(model)
    shapes = {n: a.shape for n, a in arrays.items()}
    regions: Mapping[str, tuple[Fallback, bytes]] = {}
    kinds: Mapping[str, onnx.TypeProto] = {}
    if fallback:
        _prepare(model, shapes)
        kinds = types_of(model, arrays)
    _fill(model, folder)
    if fallback:
        refused = _refused(model, Walker({}, shapes, fixed, kinds), name)
        if refused:
            model, regions = cut(model, refused, kinds)
    else:
        check_supported(name, model)
    operators = {} if source is None else match(model.graph.node, source)
    for node, (part, _) in regions.items():
        operators[node] = part.operators
    walker = Walker(operators, shapes, fixed, kinds, regions)
    module, sources = attach(_walk(walker, model, name), walker.owned)
    texts = (
        *remarks,
        *_specialised(fixed),
        *preflight.in_framework([part for part, _ in regions.values()]),
    )
    return Imported(module, sources, texts, tuple(walker.nodes), tuple(regions.values()))


def _fill(model: onnx.ModelProto, folder: Path | None) -> None:
    """Read large weights: from here on the model is not written again."""
    if folder is not None:
        onnx.external_data_helper.load_external_data_for_model(model, str(folder))


def _refused(model: onnx.ModelProto, asked: Walker, name: str) -> Mapping[str, Text]:
    """The nodes that nobody converts; the walk's own constants go with it."""
    _walk(asked, model, name)
    return asked.refused


def _walk(walker: Walker, model: onnx.ModelProto, name: str) -> tvm.IRModule:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # renamed inputs: arguments go by position
            return walker.from_onnx(model.graph, _opset(model))
    except Exception as e:  # the importer raises everything from KeyError to TVM's own errors
        raise ImportModelError(
            msg(
                "{model}: TVM's ONNX importer failed at {node}: {reason}; `onnxslim` or "
                "another opset of the export may help",
                model=name,
                node=walker.failing,
                reason=one_line(e),
            )
        ) from e


def _prepare(model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Set the sizes of all inputs and name every node, in place: cutting a graph needs both."""
    for value in model.graph.input:
        if value.name in shapes and value.type.HasField("tensor_type"):
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shapes[value.name]))
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{index}"
        taken.add(node.name)


def _specialised(fixed: Mapping[str, Array]) -> tuple[Text, ...]:
    if not fixed:
        return ()
    shown = ", ".join(f"{name}={value.tolist()}" for name, value in fixed.items())
    return (
        msg(
            "compiled for these values of inputs that decide on shapes: {shown}; other values "
            "need another build",
            shown=shown,
        ),
    )


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without function calls: its own ones, and ONNX's without a converter."""
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    opset = _opset(model)
    while bodies := _without_converter(model.graph, opset):  # a body may call other functions
        inferred = onnx.shape_inference.infer_shapes(model)
        inlined = onnx.inliner.inline_selected_functions(
            inferred, [("", name) for name in bodies], inline_schema_functions=True
        )
        if _without_converter(inlined.graph, opset) == bodies:
            break
        model = inlined
    return model


def _opset(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in DOMAINS), 1)


def _without_converter(graph: onnx.GraphProto, opset: int) -> list[str]:
    """Return the operators without a converter that ONNX defines by other operators."""
    known = onnx_frontend._get_convert_map().keys() | CONVERTERS.keys() | _CONTROL
    return sorted(
        {
            node.op_type
            for node in graph.node
            if node.domain in DOMAINS
            and node.op_type not in known
            and _has_body(node.op_type, opset)
        }
    )


def _has_body(operator: str, opset: int) -> bool:
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return False
    bodies = ("has_function", "has_context_dependent_function")  # not in the package's hints
    return any(getattr(schema, name) for name in bodies)


def simplify(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Fold shape arithmetic if there is some, and that of masks if possible.

    Other graphs keep their nodes and names.
    """
    nodes = model.graph.node
    nested = any(a.HasField("g") or a.graphs for node in nodes for a in node.attribute)
    if nested or not any(node.op_type in _SHAPE_ARITHMETIC for node in nodes):
        return model, ()  # it loses names that bodies take from the outer graph
    import onnxslim

    taken = take_out(model.graph)
    inputs = list(model.graph.input)
    try:
        slim = onnxslim.slim(model)
    except Exception as e:  # a simplifier's bug must not end a run that may work without it
        remark = msg(
            "ONNX simplification failed ({reason}); imported without it", reason=one_line(e)
        )
        fixed = fix_sizes(model)
        put_back(fixed.graph, taken)
        return fixed, (remark,)
    # It drops inputs that nothing reads any more; callers go on giving them, by position.
    del slim.graph.input[:]
    slim.graph.input.extend(inputs)
    fixed = fix_sizes(slim)
    put_back(fixed.graph, taken)
    return fixed, ()


def check_supported(name: str, model: onnx.ModelProto) -> None:
    """Refuse a model with operators of a foreign domain or without a converter."""
    known = onnx_frontend._get_convert_map().keys() | CONVERTERS.keys() | _CONTROL | {"Constant"}
    unsupported: Counter[str] = Counter()
    where: dict[str, Text] = {}
    for index, node in enumerate(model.graph.node):
        if node.op_type in known and node.domain in DOMAINS:
            continue
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        unsupported[operator] += 1
        where.setdefault(operator, msg("node '{name}'", name=node.name or str(index)))
    preflight.refuse(name, unsupported, where)
