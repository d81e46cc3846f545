"""ONNX models: checked, simplified where it helps, then through TVM's importer node by node."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import onnx
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from tvmscope.compiler.describe.sources import Imported, attach
from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.frontends.masks.onnx_rewrite import fix_sizes
from tvmscope.compiler.frontends.onnx.converters import CONVERTERS
from tvmscope.compiler.frontends.onnx.nodes import SourceGraph, match
from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import msg

_SHAPE_ARITHMETIC = {"Shape", "Size", "ConstantOfShape", "Range", "NonZero", "If", "Loop", "Expand"}
_HANDLED_INLINE = {"Constant", "If"}


class _Importer(onnx_frontend.ONNXGraphImporter):
    """TVM's importer, with each node's result bound at once and remembered."""

    def __init__(self, operators: dict[str, tuple[str, ...]]) -> None:
        super().__init__({}, "float32")
        self.operators = operators
        self.owned: list[tuple[relax.Expr, tuple[str, ...]]] = []
        self.nodes: list[str] = []
        self.failing = ""

    def _convert_operator(
        self, op_name: str, inputs: list[relax.Expr], attrs: dict[str, Any], opset: int
    ) -> relax.Expr:
        name = str(attrs["tvm_custom"]["name"]) or f"#{len(self.owned)}"
        self.failing = f"{op_name} '{name}'"
        ours = CONVERTERS.get(op_name)
        result = None if ours is None else ours(self.bb, list(inputs), attrs, opset)
        if result is None:
            result = super()._convert_operator(op_name, inputs, attrs, opset)
        if isinstance(result, relax.Call):
            result = self.bb.emit(result)
        self.nodes.append(name)
        self.owned.append((result, self.operators.get(name, (f"{name}/{op_name}",))))
        return result


def import_onnx(prepared: Prepared) -> Imported:
    """Translate `model.onnx`; refuses with the list of unsupported operators if there are any."""
    model = onnx.load(prepared.onnx_path)
    model, remarks = simplify(model)
    check_supported(prepared.model.name, model)
    importer = _Importer(match(model.graph.node, SourceGraph(prepared.folder)))
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # renamed inputs: arguments go by position
            module = importer.from_onnx(model.graph, opset)
    except Exception as e:  # the importer raises everything from KeyError to TVM's own errors
        raise ImportModelError(
            msg(
                "{model}: TVM's ONNX importer failed at {node}: {reason}; `onnxslim` or "
                "another opset of the export may help",
                model=prepared.model.name,
                node=importer.failing,
                reason=one_line(e),
            )
        ) from e
    module, sources = attach(module, importer.owned)
    return Imported(module, sources, remarks, tuple(importer.nodes))


def simplify(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Fold shape arithmetic away where there is some, and that of masks where it can be done.

    Other graphs keep their nodes and names.
    """
    if not any(node.op_type in _SHAPE_ARITHMETIC for node in model.graph.node):
        return model, ()
    import onnxslim

    inputs = list(model.graph.input)
    try:
        slim = onnxslim.slim(model)
    except Exception as e:  # a simplifier's bug must not end a run that may work without it
        remark = msg(
            "ONNX simplification failed ({reason}); imported without it", reason=one_line(e)
        )
        return fix_sizes(model), (remark,)
    # It drops inputs that nothing reads any more; callers go on giving them, by position.
    del slim.graph.input[:]
    slim.graph.input.extend(inputs)
    return fix_sizes(slim), ()


def check_supported(name: str, model: onnx.ModelProto) -> None:
    """The pre-flight: operators that TVM has no converter for, or of a foreign domain."""
    known = onnx_frontend._get_convert_map().keys() | _HANDLED_INLINE
    unsupported: Counter[str] = Counter()
    where: dict[str, str] = {}
    for index, node in enumerate(model.graph.node):
        if node.op_type in known and node.domain in ("", "ai.onnx"):
            continue
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        unsupported[operator] += 1
        where.setdefault(operator, f"node '{node.name or index}'")
    preflight.refuse(name, unsupported, where)
