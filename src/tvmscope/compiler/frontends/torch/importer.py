"""Imports PyTorch models: the exported program to a Relax module; every node is known by name."""

from __future__ import annotations

import importlib
import operator
from collections import Counter
from functools import lru_cache

import torch

from tvmscope.compiler.describe.sources import Imported, attach
from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.frontends.torch import decompositions
from tvmscope.compiler.frontends.torch.regions import cut, source_name
from tvmscope.compiler.frontends.torch.walk import Converters, Walker
from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import Text, msg
from tvmscope.runtime.torchvision_operators import make_importable


def import_torch(prepared: Prepared, fallback: bool = False) -> Imported:
    """Translate `model.pt2`.

    Operators without a converter run in PyTorch, or are refused with their list.
    """
    return translate(read_program(prepared), prepared.model.name, fallback=fallback)


def translate(
    program: torch.export.ExportedProgram, name: str, *, fallback: bool = False
) -> Imported:
    """Translate a program that is already decomposed."""
    if not fallback:
        check_supported(program, name)
    walker = Walker(program, asks=fallback)
    try:
        module = walker.module()
        if walker.refused:
            walker = Walker(program, cut(program, walker.refused), asks=False)
            module = walker.module()
    except Exception as e:  # the importer asserts, raises ValueError, and passes TVM's errors on
        raise ImportModelError(
            msg(
                "{model}: TVM's torch importer failed at {operator}: {reason}; try the model's "
                "ONNX export instead",
                model=name,
                operator=walker.failing,
                reason=one_line(e),
            )
        ) from e
    parts = tuple((region.part, region.content) for region in walker.regions)
    called = {node: region for region in walker.regions for node in region.outputs}
    made = [
        (node, value)
        for node, value in walker.env.items()
        # selecting one of several results is no operator: its name would end up on a neighbour
        if node.op == "call_function" and (node.target is not operator.getitem or node in called)
    ]
    owners = [
        (value, called[node].part.operators if node in called else (source_name(node),))
        for node, value in made
    ]
    module, sources = attach(module, owners)
    told = preflight.in_framework([part for part, _ in parts])
    return Imported(module, sources, told, tuple(node.name for node, _ in made), parts)


def check_supported(program: torch.export.ExportedProgram, name: str) -> None:
    """Refuse a program with operators that have no converter."""
    unsupported: Counter[str] = Counter()
    where: dict[str, Text] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in _converted():
            unsupported[node.target.__name__] += 1
            where.setdefault(node.target.__name__, source_name(node))
    preflight.refuse(name, unsupported, where)


@lru_cache(maxsize=1)
def _converted() -> frozenset[str]:
    return frozenset(Converters().convert_map)


def read_program(prepared: Prepared) -> torch.export.ExportedProgram:
    """Return the exported program, in the operators that are imported."""
    make_importable()
    try:
        program = torch.export.load(prepared.pt2_path)
        if any(getattr(n.target, "namespace", "") == "torchvision" for n in program.graph.nodes):
            importlib.import_module("torchvision")  # it has the sizes of its operators' results
        return decomposed(program)
    except Exception as e:  # torch raises its own and plain errors alike
        raise ImportModelError(
            msg(
                "{model}: the exported program cannot be read: {reason}",
                model=prepared.model.name,
                reason=one_line(e),
            )
        ) from e


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return the same program with fewer kinds of operators."""
    found: torch.export.ExportedProgram = program.run_decompositions(
        decompositions.table(_converted())
    )
    return found
