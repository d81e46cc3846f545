"""Counts what one call of a kernel computes and moves, from its loops before they are scheduled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from tvm import ir, s_tir, tirx
from tvm_ffi import structural_hash

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_OTHER_PAIRS = (tirx.FloorDiv, tirx.FloorMod, tirx.Mod, tirx.And, tirx.Or, *_COMPARISONS)
_FREE_CALLS = ("reinterpret", "likely", "ret")


class _Unknown(Exception):
    """The loops do not determine the work: a symbolic extent, a while loop, foreign code."""


@dataclass(frozen=True)
class Work:
    """The work of one call; None if it is unknown, or if there is no arithmetic."""

    flops: float | None = None
    bytes: float | None = None
    moves_only: bool = False
    """Whether the kernel only stores values that it loaded, at indices that are known in advance.
    """


@dataclass
class _Count:
    flops: float = 0.0
    loads: dict[tirx.Buffer, float] = field(default_factory=dict)
    stores: dict[tirx.Buffer, float] = field(default_factory=dict)
    computes: bool = False
    gathers: bool = False
    cases: dict[ir.Expr, int] = field(default_factory=dict)
    """How many values a block's axis takes; each `axis == value` case uses up one of them."""
    shared: set[int] | None = None
    """Values that one of these cases has computed, which the other cases reuse."""

    def statement(self, s: tirx.Stmt, times: float) -> None:
        """Count a statement that runs `times` times."""
        if isinstance(s, tirx.For):
            self.statement(s.body, times * _extent(s.extent))
        elif isinstance(s, tirx.SeqStmt):
            for part in s.seq:
                self.statement(part, times)
        elif isinstance(s, s_tir.SBlockRealize):
            for axis in s.block.iter_vars:
                self.cases[axis.var] = _extent(axis.dom.extent)
            self.statement(s.block.body, times)  # its `init` stores constants
        elif isinstance(s, tirx.BufferStore):
            self.stores[s.buffer] = self.stores.get(s.buffer, 0.0) + times * _lanes(s.value)
            self.value(s.value, times)
            self.indices(s.indices, times)
        elif isinstance(s, tirx.IfThenElse):
            self.statement(s.then_case, times)  # padding and bounds checks are nearly always true
        elif isinstance(s, tirx.While) or not hasattr(s, "body"):
            raise _Unknown
        else:
            self.statement(s.body, times)

    def indices(self, indices: Iterable[ir.Expr], times: float) -> None:
        """Count only the loads in indices, which make the kernel a gather."""
        self.gathers |= self._loads_of(indices, times)

    def _loads_of(self, positions: Iterable[ir.Expr], times: float) -> bool:
        """Count only the loads in an expression that selects elements; return whether there are
        any."""
        inner = _Count(cases=self.cases)
        for e in positions:
            inner.value(e, times)
        for buffer, count in inner.loads.items():
            self.loads[buffer] = self.loads.get(buffer, 0.0) + count
        return bool(inner.loads)

    def value(self, e: ir.Expr, times: float) -> None:
        """Count an expression that is evaluated `times` times."""
        if isinstance(e, ir.TensorLoad):
            self.loads[e.source] = self.loads.get(e.source, 0.0) + times * _lanes(e)
            self.indices(e.indices, times)
        elif isinstance(e, _ARITHMETIC + _OTHER_PAIRS):
            if self.shared is not None:
                if (key := structural_hash(e)) in self.shared:
                    return
                if times:
                    self.shared.add(key)
            self.computes = True
            self.flops += times if isinstance(e, _ARITHMETIC) and _is_float(e) else 0.0
            self.value(e.a, times)
            self.value(e.b, times)
        elif isinstance(e, tirx.Select):
            self._choice(e.condition, e.true_value, e.false_value, times)
        elif isinstance(e, ir.Call):
            self._call(e, times)
        elif isinstance(e, tirx.Shuffle):
            for vector in e.vectors:
                self.value(vector, times)
        elif isinstance(e, tirx.Cast):
            self.value(e.value, times)
        elif isinstance(e, tirx.Not):
            self.value(e.a, times)
        elif isinstance(e, tirx.Let):
            self.value(e.value, times)
            self.value(e.body, times)

    def _call(self, e: ir.Call, times: float) -> None:
        name = getattr(e.op, "name", "")
        if name.endswith(".if_then_else"):
            condition, yes, no = e.args
            self._choice(condition, yes, no, times)
            return
        if name.rpartition(".")[2] not in _FREE_CALLS:
            self.computes = True
            self.flops += times if _is_float(e) else 0.0
        for argument in e.args:
            self.value(argument, times)

    def _choice(self, condition: ir.Expr, yes: ir.Expr, no: ir.Expr, times: float) -> None:
        """Count the branch that is computed.

        `axis == constant` holds for one value of the axis: scheduled code unrolls such an axis, so
        that only the case that applies is left, and cases with a common part compute it once.
        """
        axis = condition.a if isinstance(condition, tirx.EQ) else None
        values = self.cases.get(axis) if axis is not None else None
        if axis is None or values is None:
            self.computes |= self._loads_of((condition,), times)  # a mask; padding loads nothing
            self.value(yes, times)
            self.value(no, 0.0)
            return
        outermost = self.shared is None
        self.shared = set() if self.shared is None else self.shared
        self.value(yes, times / values)
        if values > 1:
            self.cases[axis] = values - 1
            self.value(no, times * (values - 1) / values)
            self.cases[axis] = values
        self.shared = None if outermost else self.shared


def count(func: tirx.PrimFunc) -> Work:
    """Count the work of one call: a multiply-add is two; each input and output is moved once."""
    counted = _Count()
    try:
        counted.statement(func.body, 1.0)
        moved = sum(_bytes(p, counted) for p in func.params if isinstance(p.ty, tirx.BufferType))
    except _Unknown:
        return Work()
    return Work(
        flops=counted.flops or None,
        bytes=moved or None,
        moves_only=not counted.computes and not counted.gathers and bool(counted.loads),
    )


def _bytes(buffer: tirx.Buffer, counted: _Count) -> float:
    """Count bytes; of a large table from which few rows are read, only those rows count."""
    size = prod(_extent(d) for d in buffer.shape)
    elements = sum(min(size, n.get(buffer, 0.0)) for n in (counted.loads, counted.stores))
    # the loops load a result that is accumulated in place, but it comes from no memory
    if buffer in counted.stores:
        elements = min(size, counted.stores[buffer])
    return elements * max(1, buffer.dtype.bits * buffer.dtype.lanes // 8)


def _extent(value: ir.Expr) -> int:
    if not isinstance(value, tirx.IntImm):
        raise _Unknown
    return int(value)


def _lanes(e: ir.Expr) -> int:
    return int(getattr(getattr(e.ty, "dtype", None), "lanes", 1))


def _is_float(e: ir.Expr) -> bool:
    return "float" in str(getattr(e.ty, "dtype", ""))  # an address has none
