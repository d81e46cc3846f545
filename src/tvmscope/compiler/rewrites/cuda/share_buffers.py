"""Lets generated kernels write into, and read from, parts of wider tensors.

    concat(conv(x), pool(y))  ->  one buffer; each kernel writes its own channels of it
    conv(strided_slice(x))    ->  the kernel reads those channels of x in place

A concatenation of our kernels' results then costs nothing, and neither does a slice that one of
them reads. A concatenation whose operands are the first ones of a longer one shares the longer
one's buffer (the blocks of a DenseNet).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import flat, operator_name, replace_binding
from tvmscope.compiler.units import emit
from tvmscope.compiler.units.graph import Graph, dtype_of, scalar, shape_of
from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Conv2d, Pool, Unit, View
from tvmscope.cuda.units.base import ITEM_BYTES

_LOAD_BYTES = 16
"""The bytes of the widest load or store; unaligned parts would be read in pieces."""
_CHANNELS = 3
_READ = ("input", "residual")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A unit's launch in the program."""

    bound: relax.Var
    """The variable of the call: a tuple if the kernel needs workspace."""
    result: relax.Var
    unit: Unit
    config: Config
    args: tuple[relax.Expr, ...]


@dataclass(eq=False)
class _Buffer:
    """A concatenation's memory: the position of each result."""

    shape: tuple[int, ...]
    dtype: str
    parts: dict[relax.Var, int]
    """Results of units, and their first channels."""
    concats: dict[relax.Var, int] = field(default_factory=dict)
    """Concatenations that begin at the buffer's first channel, and their widths."""
    now: relax.Var | None = None
    """The value that contains everything written so far."""


@dataclass(frozen=True)
class _Part:
    """The position of a value in a wider one."""

    base: relax.Var
    offset: int
    pitch: int


def share_buffers() -> tvm.transform.Pass:
    """Return the pass."""

    @tvm.transform.module_pass(opt_level=0, name="ShareBuffers")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        graph = Graph(module["main"])
        calls = {call.bound: call for call in _calls(module, graph)}
        sharer = _Sharer(module, calls, _buffers(graph, calls))
        shared = sharer.visit_expr(module["main"])
        sharer.builder_.update_func(module.get_global_var("main"), shared)
        return relax.transform.DeadCodeElimination()(sharer.builder_.get())

    return transform


def _calls(module: tvm.IRModule, graph: Graph) -> Iterator[_Call]:
    picked = {
        value.tuple_value: var
        for var, value in graph.values.items()
        if isinstance(value, relax.TupleGetItem) and value.index == 0
    }
    for binding in graph.bindings:
        value = binding.value
        if not isinstance(value, relax.Call) or operator_name(value) != "relax.call_tir":
            continue
        callee = value.args[0]
        assert isinstance(callee, tvm.ir.GlobalVar)
        func = module[callee]
        placed = emit.read(func) if isinstance(func, tirx.PrimFunc) else None
        if placed is None or not isinstance(placed[0], Conv2d | Pool):
            continue
        result = picked.get(binding.var, binding.var)
        if shape_of(result) == placed[0].tensors[-1].shape:
            yield _Call(
                bound=binding.var,
                result=result,
                unit=placed[0],
                config=placed[1],
                args=tuple(flat([value.args[1]])),
            )


def _buffers(graph: Graph, calls: dict[relax.Var, _Call]) -> list[_Buffer]:
    """Find buffers, widest concatenations first: a shorter one may be the start of a longer one."""
    written = {call.result: call for call in calls.values()}
    operands = {b.var: tuple(_fields(graph, b.var)) for b in graph.bindings}
    concats = {var: o for var, o in operands.items() if o and all(f in written for f in o)}
    found: list[_Buffer] = []
    taken: set[relax.Var] = set()
    for var, fields in sorted(concats.items(), key=lambda c: -shape_of(c[0])[_CHANNELS]):
        longer = next((b for b in found if tuple(b.parts)[: len(fields)] == fields), None)
        if longer is not None:
            longer.concats[var] = shape_of(var)[_CHANNELS]
            continue
        buffer = _buffer(var, fields)
        if buffer is not None and not taken & set(fields):
            taken |= set(fields)
            found.append(buffer)
    return found


def _fields(graph: Graph, var: relax.Var) -> list[relax.Var]:
    """Return the operands of a concatenation of channels; none if it is another, or two equal."""
    call = graph.call(var, "concat")
    if call is None or len(shape_of(var)) != _CHANNELS + 1 or call.attrs.axis is None:
        return []
    given = call.args[0]
    operands = graph.values.get(given, given) if isinstance(given, relax.Var) else given
    if int(call.attrs.axis) not in (_CHANNELS, -1) or not isinstance(operands, relax.Tuple):
        return []
    fields = [f for f in operands.fields if isinstance(f, relax.Var)]
    return fields if len(set(fields)) == len(operands.fields) > 1 else []


def _buffer(var: relax.Var, fields: tuple[relax.Var, ...]) -> _Buffer | None:
    offset, parts = 0, {}
    for each in fields:
        parts[each] = offset
        offset += shape_of(each)[_CHANNELS]
    buffer = _Buffer(shape_of(var), dtype_of(var), parts, {var: offset})
    return buffer if all(_aligned(buffer.dtype, o) for o in (*parts.values(), offset)) else None


def _aligned(dtype: str, channels: int) -> bool:
    return channels * ITEM_BYTES[dtype] % _LOAD_BYTES == 0


def _with_view(unit: Unit, role: str, view: View) -> Unit:
    changes: dict[str, Any] = {role: view}
    return replace(unit, **changes)


@mutator
class _Sharer(PyExprMutator):
    def __init__(
        self, module: tvm.IRModule, calls: dict[relax.Var, _Call], buffers: list[_Buffer]
    ) -> None:
        super().__init__(module)
        self.calls = calls
        self.buffers = {result: b for b in buffers for result in b.parts}
        self.concats = {var: b for b in buffers for var in b.concats}
        self.results = {c.result for c in calls.values() if c.result != c.bound}
        self.parts: dict[relax.Var, _Part] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Call kernels with the parts that they read and write; remember slices."""
        var = binding.var
        call = self.calls.get(var)
        if call is not None and (call.result in self.buffers or self._reads_part(call)):
            self._launch(call)
        elif var in self.results and (var in self.buffers or var in self.parts):
            return
        elif var in self.concats:
            self._concat(var)
        else:
            super().visit_var_binding_(binding)
            if (part := self._slice(binding.value)) is not None:
                self.parts[var] = part

    def _reads_part(self, call: _Call) -> bool:
        return any(isinstance(a, relax.Var) and a in self.parts for a in call.args)

    def _slice(self, value: relax.Expr) -> _Part | None:
        """Return the position of a slice of channels in its source."""
        if not isinstance(value, relax.Call) or operator_name(value) != "relax.strided_slice":
            return None
        data, axes, begin, end, *strides = value.args
        numbers = [[scalar(n) for n in flat([a])] for a in (axes, begin, end, *strides)]
        shape = shape_of(data)
        if len(shape) != _CHANNELS + 1 or numbers[0] not in ([_CHANNELS], [-1]):
            return None
        if any(n != [1] for n in numbers[3:]) or not isinstance(data, relax.Var):
            return None
        first = int(numbers[1][0] or 0)
        offset = max(first + shape[_CHANNELS], 0) if first < 0 else first
        inside = self.parts.get(data)
        if inside is not None:
            return _Part(inside.base, inside.offset + offset, inside.pitch)
        source = self.visit_expr(data)
        return _Part(source, offset, shape[_CHANNELS]) if isinstance(source, relax.Var) else None

    def _concat(self, var: relax.Var) -> None:
        buffer = self.concats[var]
        assert buffer.now is not None
        width, whole = buffer.concats[var], buffer.shape[_CHANNELS]
        value: relax.Expr = buffer.now
        if width < whole:
            value = self._cut(buffer.now, 0, width, var.name)
            self.parts[var] = _Part(buffer.now, 0, whole)
        replace_binding(self, var, value)

    def _cut(self, base: relax.Var, offset: int, width: int, name: str) -> relax.Var:
        """Copy a part to its own tensor, for readers that cannot read it in place."""
        cut = relax.op.strided_slice(base, [_CHANNELS], [offset], [offset + width])
        return self.builder_.emit(cut, name)

    def _launch(self, call: _Call) -> None:
        unit, given = self._reading(call)
        buffer = self.buffers.get(call.result)
        tensors = emit.arguments(unit, call.config)
        if buffer is not None:
            offset, pitch = buffer.parts[call.result], buffer.shape[_CHANNELS]
            view = View(offset=offset, pitch=pitch)
            unit = _with_view(unit, "output", view)
            tensors = emit.arguments(unit, call.config)
        roles = [t.role for t in tensors if t.role not in emit.OUTPUTS]
        shapes = {r: shape_of(g) for r, g in zip(roles, given, strict=True)}
        outputs = [t for t in tensors if t.role in emit.OUTPUTS]
        outputs.sort(key=lambda t: emit.OUTPUTS.index(t.role))
        types = [relax.TensorType(shapes.get(t.role, t.shape), t.dtype) for t in outputs]
        function = self.builder_.add_func(emit.function(unit, call.config, shapes), emit.hint(unit))
        wanted = types if len(types) > 1 else types[0]
        if buffer is not None and buffer.now is not None:
            places = [len(given), *(-1 for _ in types[1:])]
            args = [*given, buffer.now]
            made = relax.op.call_tir_inplace(function, args, places, wanted)
        else:
            made = relax.op.call_tir(function, given, wanted)
        result = self.builder_.emit(made, call.result.name)
        if len(types) > 1:
            result = self.builder_.emit(relax.TupleGetItem(result, 0), call.result.name)
        if buffer is None:
            replace_binding(self, call.result, result)
            self.parts.pop(call.result, None)
            return
        buffer.now = result
        self.parts[call.result] = _Part(result, offset, pitch)
        width = shape_of(call.result)[_CHANNELS]
        replace_binding(self, call.result, self._cut(result, offset, width, call.result.name))

    def _reading(self, call: _Call) -> tuple[Unit, list[relax.Expr]]:
        """Return the unit with its operands as parts of wider ones, and those wider ones."""
        unit, given = call.unit, list[relax.Expr]()
        roles = [t.role for t in emit.arguments(unit, call.config) if t.role not in emit.OUTPUTS]
        for role, value in zip(roles, call.args, strict=True):
            part = self.parts.get(value) if isinstance(value, relax.Var) else None
            if part is None or role not in _READ or not self._readable(unit, role, part):
                given.append(self.visit_expr(value))
                continue
            unit = _with_view(unit, role, View(offset=part.offset, pitch=part.pitch))
            given.append(part.base)
        return unit, given

    def _readable(self, unit: Unit, role: str, part: _Part) -> bool:
        """Whether the unit takes a dense operand there, and the part is aligned."""
        dense = getattr(unit, role, None) == View()
        return dense and all(_aligned(unit.dtype, c) for c in (part.offset, part.pitch))
