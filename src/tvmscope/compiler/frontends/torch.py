"""PyTorch models: the exported program through TVM's importer, every node remembered by name."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import torch
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.sources import Imported, attach
from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line


def import_torch(prepared: Prepared) -> Imported:
    """Translate `model.pt2`; refuses with the list of unsupported operators if there are any."""
    program = read_program(prepared)
    importer = ExportedProgramImporter()
    unsupported: Counter[str] = Counter()
    where: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in importer.convert_map:
            unsupported[node.target.__name__] += 1
            where.setdefault(node.target.__name__, source_name(node))
    preflight.refuse(prepared.model.name, unsupported, where)
    try:
        module = importer.from_exported_program(program, False, False, False, None)
    except Exception as e:  # the importer asserts, raises ValueError, and passes TVM's errors on
        raise ImportModelError(
            f"{prepared.model.name}: TVM's torch importer failed: {one_line(e)}; "
            "try the model's ONNX export instead"
        ) from e
    made = [
        (node, value)
        for node, value in importer.env.items()
        # picking one of several results is no operator: its name would end up on a neighbour
        if node.op == "call_function" and node.target is not operator.getitem
    ]
    module, sources = attach(module, [(value, (source_name(node),)) for node, value in made])
    return Imported(module, sources, nodes=tuple(node.name for node, _ in made))


def read_program(prepared: Prepared) -> torch.export.ExportedProgram:
    """The exported program, in the operators that TVM imports."""
    try:
        return torch.export.load(prepared.pt2_path).run_decompositions()
    except Exception as e:  # torch raises its own and plain errors alike
        raise ImportModelError(
            f"{prepared.model.name}: the exported program cannot be read: {one_line(e)}"
        ) from e


def source_name(node: Any) -> str:
    """The operator that a node was decomposed from, as it was named when the model was prepared."""
    return str((node.meta.get("custom") or {}).get("tvmscope") or node.name)
