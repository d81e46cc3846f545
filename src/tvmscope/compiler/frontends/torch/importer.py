"""PyTorch models: the exported program through TVM's importer, every node remembered by name."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvmscope.compiler.describe.sources import Imported, attach
from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.frontends.masks import torch_assignments as masks
from tvmscope.compiler.frontends.torch.reductions import REDUCTIONS
from tvmscope.compiler.graph.rewrite import coordinates
from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, one_line
from tvmscope.messages import msg

_REDUCTIONS = {None: "update", "sum": "add", "prod": "mul", "amin": "min", "amax": "max"}
"""PyTorch's names, and those of `scatter_elements`."""


class _Importer(ExportedProgramImporter):
    """TVM's importer, which takes a mask for indices 0 and 1, and wants an index for every axis.

    Scatters with a reduction and by a mask it lacks.
    """

    def _index_put(self, node: Any) -> relax.Var:
        data, indices, values, *rest = self.retrieve_args(node)
        given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
        by_mask = any(masks.is_mask(index) for _, index in given)
        adds = bool(rest and rest[0])
        if len(given) == 1 and by_mask:
            return masks.put_mask(self.block_builder.emit, data, *given[0], values, adds=adds)
        if not by_mask and len(given) == len(indices) < data.ty.ndim:
            return self._put_rows(data, list(indices), values, adds)
        return super()._index_put(node)

    def _index_tensor(self, node: Any) -> relax.Var:
        """Convert a mask to indices: TVM would take its truth values for indices."""
        _, indices = self.retrieve_args(node)
        masks.refuse_masks(indices)
        return super()._index_tensor(node)

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

    def _masked_scatter(self, node: Any) -> relax.Var:
        return masks.masked_scatter(self.block_builder.emit, *self.retrieve_args(node))

    def _scatter(self, node: Any) -> relax.Var:
        """Also with a reduction; of the values, as many as there are indices."""
        data, axis, index, values, *how = self.retrieve_args(node)
        given = {**node.kwargs, **dict(zip(("reduce", "include_self"), how, strict=False))}
        adds = node.target.__name__ == "scatter_add.default"
        reduction = _REDUCTIONS.get("sum" if adds else given.get("reduce"))
        if reduction is None or not given.get("include_self", True):
            how = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(f"{node.target.__name__} with {how}")
        emit, op, shape = self.block_builder.emit, relax.op, list(index.ty.shape)
        zeros = [0] * len(shape)
        part = emit(op.strided_slice(values, list(range(len(shape))), zeros, shape))
        return emit(op.scatter_elements(data, index, part, axis, reduction))

    def _reduce(self, node: Any) -> relax.Expr:
        convert = REDUCTIONS[node.target.__name__]
        return convert(self.block_builder.emit, *self.retrieve_args(node), **node.kwargs)

    def create_convert_map(self) -> dict[str, Any]:
        return {
            **super().create_convert_map(),
            **dict.fromkeys(REDUCTIONS, self._reduce),
            "masked_scatter.default": self._masked_scatter,
            "scatter_add.default": self._scatter,
            "scatter_reduce.two": self._scatter,
        }


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
            msg(
                "{model}: TVM's torch importer failed: {reason}; try the model's ONNX export "
                "instead",
                model=prepared.model.name,
                reason=one_line(e),
            )
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
        program = torch.export.load(prepared.pt2_path)
        decomposed: torch.export.ExportedProgram = program.run_decompositions()
    except Exception as e:  # torch raises its own and plain errors alike
        raise ImportModelError(
            msg(
                "{model}: the exported program cannot be read: {reason}",
                model=prepared.model.name,
                reason=one_line(e),
            )
        ) from e
    return decomposed


def source_name(node: Any) -> str:
    """The operator that a node was decomposed from, as it was named when the model was prepared."""
    return str((node.meta.get("custom") or {}).get("tvmscope") or node.name)
