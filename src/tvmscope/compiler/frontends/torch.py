"""PyTorch models: the exported program through TVM's importer, every node remembered by name."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter
from tvm.tirx import IntImm

from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.passes.rewrite import coordinates
from tvmscope.compiler.sources import Imported, attach
from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line


class _Importer(ExportedProgramImporter):  # type: ignore[misc]  # TVM has no type hints
    """TVM's importer, which takes a mask for indices 0 and 1, and wants an index for every axis."""

    def _index_put(self, node: Any) -> relax.Var:
        data, indices, values, *rest = self.retrieve_args(node)
        given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
        masks = [pair for pair in given if str(pair[1].ty.dtype) == "bool"]
        adds = bool(rest and rest[0])
        if len(given) == 1 and masks:
            return self._put_mask(data, *given[0], values, adds)
        if not masks and len(given) == len(indices) < data.ty.ndim:
            return self._put_rows(data, list(indices), values, adds)
        return super()._index_put(node)

    def _put_rows(
        self, data: relax.Expr, indices: list[relax.Expr], values: relax.Expr, adds: bool
    ) -> relax.Var:
        """As a scatter_nd, whose coordinates are the broadcast index tensors side by side."""
        emit, op = self.block_builder.emit, relax.op
        sizes = [[int(d) for d in i.ty.shape] for i in indices]
        shape = np.broadcast_shapes(*(tuple(s) for s in sizes))
        places = coordinates(emit, indices, shape)
        rows = emit(op.broadcast_to(values, (*shape, *list(data.ty.shape)[len(indices) :])))
        return emit(op.scatter_nd(data, places, rows, "add" if adds else "update"))

    def _put_mask(
        self, data: relax.Expr, axis: int, mask: relax.Expr, values: relax.Expr, adds: bool
    ) -> relax.Var:
        emit, op = self.block_builder.emit, relax.op
        after = data.ty.ndim - axis - mask.ty.ndim
        values = self._over_mask(values, mask.ty.ndim, after)
        if adds:
            values = emit(op.add(data, values))
        spread = emit(op.reshape(mask, (*mask.ty.shape, *(1,) * after)))
        return emit(op.where(spread, values, data))

    def _over_mask(self, values: relax.Expr, axes: int, after: int) -> relax.Expr:
        """The values with the one axis of all chosen places as the axes of the mask."""
        shape = list(values.ty.shape)
        if len(shape) <= after:
            return values
        *before, chosen = shape[: len(shape) - after]
        if not isinstance(chosen, IntImm) or int(chosen) != 1:
            raise ValueError("as many values as a mask has places: known at run time only")
        last = shape[len(shape) - after :]
        return self.block_builder.emit(relax.op.reshape(values, (*before, *(1,) * axes, *last)))


def import_torch(prepared: Prepared) -> Imported:
    """Translate `model.pt2`; refuses with the list of unsupported operators if there are any."""
    program = read_program(prepared)
    importer = _Importer()
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
