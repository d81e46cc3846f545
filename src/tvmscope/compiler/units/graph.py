"""A Relax function as units see it: the definition and the readers of each value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import static_shape

Array = np.ndarray[Any, Any]


class Graph:
    """Definitions and readers of a function's variables."""

    def __init__(self, function: relax.Function, *, fused: bool = True) -> None:
        self.fused = fused
        """Whether a unit may include the operators after it."""
        self.bindings = [
            b for block in function.body.blocks for b in block.bindings
            if isinstance(b, relax.VarBinding)
        ]  # fmt: skip
        self.values = {b.var: b.value for b in self.bindings}
        self.order = {b.var: index for index, b in enumerate(self.bindings)}
        self.readers: dict[relax.Var, list[relax.Var | None]] = defaultdict(list)
        """Variables that are computed from a variable; None means that the function returns it, or
        matches its shape."""
        self.varying: set[relax.Var] = set()
        """Variables whose values depend on the function's parameters."""
        for b in self.bindings:
            for var in variables(b.value):
                self.readers[var].append(b.var)
                if var in self.varying or var not in self.values:
                    self.varying.add(b.var)
        for block in function.body.blocks:
            for other in block.bindings:
                if not isinstance(other, relax.VarBinding):  # a match of shapes
                    for var in variables(other.value):
                        self.readers[var].append(None)
        for var in variables(function.body.body):
            self.readers[var].append(None)
        self.needed: set[relax.Var] = set()
        """Values that found units read, which must be computed."""
        self.hidden: set[relax.Var] = set()
        """Values inside found units, which are never stored."""

    def call(self, value: relax.Expr, *names: str) -> relax.Call | None:
        """Return the call that produces `value`, if it calls one of the operators `names`."""
        bound = self.values.get(value) if isinstance(value, relax.Var) else value
        if isinstance(bound, relax.Call) and isinstance(bound.op, tvm.ir.Op):
            name = bound.op.name.removeprefix("relax.")
            return bound if not names or name in names else None
        return None

    def live(self, units: Mapping[relax.Var, Iterable[relax.Var]]) -> set[relax.Var]:
        """Return the variables whose values are needed, if each key of `units` is computed from its
        values instead of as it is written."""
        found: set[relax.Var] = set()
        for b in reversed(self.bindings):
            if b.var in found or None in self.readers[b.var]:
                found.add(b.var)
                found.update(units.get(b.var) or variables(b.value))
        return found

    def lookup_binding(self, var: relax.Var) -> relax.Expr | None:
        """Return what a variable is bound to; None for a parameter."""
        return self.values.get(var)

    def only_reader(self, var: relax.Var) -> relax.Var | None:
        """Return the one variable that is computed from `var`; None if there is not exactly one."""
        found = set(self.readers[var])
        return next(iter(found)) if len(found) == 1 else None


def variables(value: relax.Expr) -> Iterator[relax.Var]:
    """Yield the variables that a bound value reads; those of a branch are read by it."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from variables(field)
    elif isinstance(value, relax.TupleGetItem):
        yield from variables(value.tuple_value)
    elif isinstance(value, relax.Call):
        for arg in value.args:
            yield from variables(arg)
    elif isinstance(value, relax.If):
        yield from variables(value.cond)
        for branch in (value.true_branch, value.false_branch):
            yield from relax.analysis.free_vars(branch)


def name_of(call: relax.Call) -> str:
    """Return the operator's name without `relax.`; empty if the call is not of an operator."""
    return call.op.name.removeprefix("relax.") if isinstance(call.op, tvm.ir.Op) else ""


def constant(value: relax.Expr) -> Array | None:
    """Return a constant's values; None for any other expression."""
    return value.value.numpy() if isinstance(value, GenericConst) else None


def scalar(value: relax.Expr) -> float | None:
    """Return a number that is written in the graph; None for any other expression."""
    if isinstance(value, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return float(value.value)
    array = constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """Return a static shape; empty if it is not known."""
    return static_shape(value) or ()


def dtype_of(value: relax.Expr) -> str:
    """Return a tensor's element type."""
    return str(getattr(value.ty, "dtype", ""))
