"""Walks an exported program node by node: our converters first, then TVM's; results are checked."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import IRModule, relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter
from tvm.tirx import IntImm

from tvmscope.compiler.frontends.masks import torch_assignments as masks
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.compiler.frontends.torch.converters import recurrent
from tvmscope.compiler.frontends.torch.converters.reductions import REDUCTIONS
from tvmscope.compiler.frontends.torch.regions import Region, dtype_name, fixed_shape, planned
from tvmscope.compiler.graph.rewrite import coordinates
from tvmscope.errors import one_line
from tvmscope.messages import Text, msg

_REDUCTIONS = {None: "update", "sum": "add", "prod": "mul", "amin": "min", "amax": "max"}
"""PyTorch's names of reductions, and those of `scatter_elements`."""
_HALVES = ("float16", "bfloat16")
_LEFT = ("__lshift__.Scalar", "__lshift__.Tensor", "bitwise_left_shift.Tensor")
_RIGHT = ("__rshift__.Scalar", "__rshift__.Tensor", "bitwise_right_shift.Tensor")


class Converters(ExportedProgramImporter):
    """TVM's importer, which treats a mask as indices 0 and 1, and needs an index for every axis.

    It lacks scatters with a reduction and by a mask.
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
        """Refuse a mask: TVM would treat its truth values as indices."""
        _, indices = self.retrieve_args(node)
        masks.refuse_masks(indices)
        return super()._index_tensor(node)

    def _put_rows(
        self, data: relax.Expr, indices: list[relax.Expr], values: relax.Expr, adds: bool
    ) -> relax.Var:
        """Emit a scatter_nd, whose coordinates are the broadcast index tensors stacked."""
        emit, op = self.block_builder.emit, relax.op
        sizes = [[int(d) for d in i.ty.shape] for i in indices]
        shape = np.broadcast_shapes(*(tuple(s) for s in sizes))
        places = coordinates(emit, indices, shape)
        rows = emit(op.broadcast_to(values, (*shape, *list(data.ty.shape)[len(indices) :])))
        return emit(op.scatter_nd(data, places, rows, "add" if adds else "update"))

    def _masked_scatter(self, node: Any) -> relax.Var:
        return masks.masked_scatter(self.block_builder.emit, *self.retrieve_args(node))

    def _scatter(self, node: Any) -> relax.Var:
        """Convert a scatter, also with a reduction; use as many values as there are indices."""
        data, axis, index, values, *how = self.retrieve_args(node)
        given = {**node.kwargs, **dict(zip(("reduce", "include_self"), how, strict=False))}
        adds = node.target.__name__ == "scatter_add.default"
        reduction = _REDUCTIONS.get("sum" if adds else given.get("reduce"))
        if reduction is None or not given.get("include_self", True):
            how = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise Unsupported(
                msg("{operator} with {options}", operator=node.target.__name__, options=how)
            )
        emit, op, shape = self.block_builder.emit, relax.op, list(index.ty.shape)
        zeros = [0] * len(shape)
        part = emit(op.strided_slice(values, list(range(len(shape))), zeros, shape))
        return emit(op.scatter_elements(data, index, part, axis, reduction))

    def _reduce(self, node: Any) -> relax.Expr:
        convert = REDUCTIONS[node.target.__name__]
        return convert(self.block_builder.emit, *self.retrieve_args(node), **node.kwargs)

    def _recurrent(self, node: Any) -> relax.Expr:
        name = node.target.__name__
        return recurrent.layers(self.block_builder, name, *self.retrieve_args(node))

    def _product(self, node: Any) -> relax.Expr:
        """Multiply in the type of the operands; sum half precision in float32."""
        first, second = self.retrieve_args(node)[:2]
        dtype = str(first.ty.dtype)
        emit, op = self.block_builder.emit, relax.op
        if dtype not in _HALVES:
            return emit(op.matmul(first, second, out_dtype=dtype))
        return emit(op.astype(emit(op.matmul(first, second, out_dtype="float32")), dtype))

    def _shift(self, node: Any) -> relax.Expr:
        data, other = self.retrieve_args(node)[:2]
        if not isinstance(other, relax.Expr):
            dtype = str(data.ty.dtype)
            other = relax.const(np.asarray(other, dtype), dtype)
        shift = relax.op.left_shift if node.target.__name__ in _LEFT else relax.op.right_shift
        return self.block_builder.emit(shift(data, other))

    def create_convert_map(self) -> dict[str, Any]:
        return {
            **super().create_convert_map(),
            **dict.fromkeys(REDUCTIONS, self._reduce),
            **dict.fromkeys(recurrent.KINDS, self._recurrent),
            **dict.fromkeys(("mm.default", "bmm.default", "matmul.default"), self._product),
            **dict.fromkeys(_LEFT + _RIGHT, self._shift),
            "masked_scatter.default": self._masked_scatter,
            "scatter_add.default": self._scatter,
            "scatter_reduce.two": self._scatter,
        }


class Walker(Converters):
    """The importer on a whole program.

    A walk that checks records the nodes that cannot be converted, with the reason, and continues.
    """

    def __init__(
        self, program: torch.export.ExportedProgram, regions: Sequence[Region] = (), *, asks: bool
    ) -> None:
        super().__init__()
        self.program = program
        self.regions = regions
        self.asks = asks
        self.refused: dict[torch.fx.Node, Text] = {}
        self.failing = ""

    def module(self) -> IRModule:
        """Return the imported program."""
        return self.from_exported_program(self.program, False, False, False, None)

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        """Do nothing: the walk itself finds unsupported operators."""

    def _translate_fx_graph(
        self, graph_module: Any, nodes: Any, inputs_vars: Any, custom_ops: Any = None
    ) -> Any:
        if graph_module is not self.program.graph_module:  # a branch of a condition
            return super()._translate_fx_graph(graph_module, nodes, inputs_vars, custom_ops)
        for node in nodes:
            if node.op == "placeholder" and node.name in inputs_vars:
                self.env[node] = inputs_vars[node.name]
            elif node.op == "get_attr":
                self.env[node] = getattr(graph_module, node.target)
        for step in planned(nodes, self.regions):
            if isinstance(step, Region):
                self._call(step)
            else:
                self.env[step] = self._converted(step)
        (output,) = (node for node in nodes if node.op == "output")
        return self._flatten_output_args(self.retrieve_args(output)[0])

    def _converted(self, node: Any) -> Any:
        self.failing = str(node.target.__name__)
        try:
            if node.target.__name__ not in self.convert_map:
                raise Unsupported(msg("there is no converter"))
            result = self._narrowed(node, self.convert_map[node.target.__name__](node))
            _check(node, result)
        except Exception as e:  # converters raise everything from KeyError to TVM's own errors
            if not self.asks:
                raise
            self.refused[node] = one_line(e)
            return self._stand_in(node.meta.get("val"))
        return result

    def _narrowed(self, node: Any, result: Any) -> Any:
        """Cast to half precision if PyTorch returns that: TVM's sums of products are float32."""
        wanted = node.meta.get("val")
        if not isinstance(wanted, torch.Tensor) or dtype_name(wanted) not in _HALVES:
            return result
        kind = getattr(result, "ty", None)
        if not isinstance(kind, relax.TensorType) or str(kind.dtype) != "float32":
            return result
        return self.block_builder.emit(relax.op.astype(result, dtype_name(wanted)))

    def _stand_in(self, value: Any) -> Any:
        """Return a placeholder of the right type for a result."""
        if isinstance(value, list | tuple):
            return tuple(self._stand_in(item) for item in value)
        if not isinstance(value, torch.Tensor) or value.dtype.is_complex:
            return value
        kind = _type(value)
        return self.block_builder.emit(relax.op.call_pure_packed("stand_in", ty_args=kind))

    def _call(self, region: Region) -> None:
        """Emit one call of PyTorch."""
        kinds = [_type(node.meta["val"]) for node in region.outputs]
        whole = kinds[0] if len(kinds) == 1 else relax.TupleType(kinds)
        given = [self.env[node] for node in region.inputs]
        made = self.block_builder.emit(
            relax.op.call_pure_packed(region.part.name, *given, ty_args=whole)
        )
        for index, node in enumerate(region.outputs):
            field = relax.TupleGetItem(made, index)
            self.env[node] = made if len(kinds) == 1 else self.block_builder.emit(field)


def _type(value: torch.Tensor) -> relax.TensorType:
    shape = fixed_shape(value)
    if shape is None:
        return relax.TensorType(ndim=value.ndim, dtype=dtype_name(value))
    return relax.TensorType(shape, dtype_name(value))


def _check(node: Any, result: Any) -> None:
    """Refuse a result of another type than PyTorch's: the converter misread the node."""
    wanted = node.meta.get("val")
    if isinstance(wanted, list | tuple):
        used = {
            user.args[1]
            for user in node.users
            if user.target is operator.getitem and isinstance(user.args[1], int) and user.users
        }
        for index, (kind, value) in enumerate(zip(_types(result), wanted, strict=False)):
            if index in used:
                _compare(kind, value)
    elif not isinstance(result, relax.Tuple):
        for kind in _types(result):
            _compare(kind, wanted)


def _types(result: Any) -> Iterable[Any]:
    kind = getattr(result, "ty", None)
    if isinstance(kind, relax.TupleType):
        return list(kind.fields)
    if isinstance(result, list | tuple):
        return [getattr(item, "ty", None) for item in result]
    return [kind]


def _compare(found: Any, wanted: Any) -> None:
    shape = fixed_shape(wanted) if isinstance(wanted, torch.Tensor) else None
    if shape is None or not isinstance(found, relax.TensorType) or found.shape is None:
        return
    kind: Any = found
    sizes = [int(d) if isinstance(d, IntImm) else None for d in kind.shape]
    fits = len(sizes) == len(shape) and all(
        a is None or a == b for a, b in zip(sizes, shape, strict=True)
    )
    if not fits or str(kind.dtype) != dtype_name(wanted):
        raise Unsupported(
            msg(
                "imported as {found}, it is {wanted}",
                found=f"{kind.dtype}{sizes}",
                wanted=f"{dtype_name(wanted)}{list(shape)}",
            )
        )
