"""Evaluates parts of a graph that depend on no input, such as index arithmetic.

FoldConstant does not fold them: exporters build indices from shapes, ranges and broadcasts, and the
result may be far larger than its operands, so it is evaluated only where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import FloatImm, IntImm

from tvmscope.compiler.graph import arithmetic
from tvmscope.compiler.graph.arithmetic import Array
from tvmscope.compiler.graph.rewrite import static_shape

WRITTEN = frozenset({"relax.full"})
"""Operators whose result is one number: kernels write it, they need not read it."""
_MOST_ELEMENTS = 1 << 26
"""Larger index tensors than this are not evaluated."""


class Bindings(Protocol):
    """What knows the definitions of variables: a rewriting pass, or a graph of units."""

    def lookup_binding(self, var: relax.Var, /) -> relax.Expr | None:
        """Return what a variable is bound to; None for a function's parameter."""


def value(bindings: Bindings, expr: relax.Expr) -> Array | None:
    """Return the array that an expression always evaluates to, or None."""
    return _Evaluator(bindings).array(expr)


def folded(bindings: Bindings, call: relax.Call, most_grown: int) -> Array | None:
    """Return what a call of constants evaluates to; None if its value has more than `most_grown`
    elements and is larger than all operands. One number everywhere is a constant, too, but none of
    any size."""
    shape = static_shape(call)
    if name_of(call) not in arithmetic.TABLE or shape is None:
        return None
    evaluator = _Evaluator(_Constants(bindings))
    read = [arg for arg in evaluator.flat(call.args) if not _is_written(bindings, arg)]
    if prod(shape) > max(most_grown, *(prod(static_shape(arg) or ()) for arg in read), 0):
        return None
    args = evaluator.operands(call)
    return None if args is None else _evaluated(args, call)


def fields(bindings: Bindings, expr: relax.Expr) -> list[relax.Expr]:
    """Return the fields of a tuple that the graph builds; else nothing."""
    bound = bindings.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
    return list(bound.fields) if isinstance(bound, relax.Tuple) else []


def origin(bindings: Bindings, expr: relax.Expr) -> relax.Expr:
    """Return the variable that a chain of aliases refers to."""
    while isinstance(expr, relax.Var):
        bound = bindings.lookup_binding(expr)
        if not isinstance(bound, relax.Var):
            break
        expr = bound
    return expr


def name_of(call: relax.Call) -> str:
    """Return the operator's name; empty for a call of anything else."""
    return str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""


def _is_written(bindings: Bindings, expr: relax.Expr) -> bool:
    bound = bindings.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
    return isinstance(bound, relax.Call) and name_of(bound) in WRITTEN


def _evaluated(args: Sequence[Array], call: relax.Call) -> Array | None:
    """Return the result; None where numpy's rules for types differ from the compiler's."""
    if name_of(call) in arithmetic.FLOAT_ONLY and args[0].dtype.kind != "f":
        return None
    result = np.asarray(arithmetic.TABLE[name_of(call)](args, call), order="C")
    fits = result.shape == static_shape(call) and str(result.dtype) == str(call.ty.dtype)
    return result if fits else None


@dataclass(frozen=True)
class _Constants:
    """The definitions of variables that are constants, one number everywhere, or tuples."""

    bindings: Bindings

    def lookup_binding(self, var: relax.Var, /) -> relax.Expr | None:
        """Return the constant, the call or the tuple that a variable is bound to."""
        bound = self.bindings.lookup_binding(var)
        known = isinstance(bound, GenericConst | relax.Tuple) or _is_written(self.bindings, var)
        return bound if known else None


class _Evaluator:
    def __init__(self, bindings: Bindings) -> None:
        self.bindings = bindings
        self.seen: dict[relax.Var, Array | None] = {}

    def array(self, expr: relax.Expr) -> Array | None:
        if isinstance(expr, GenericConst):
            return expr.value.numpy()
        if isinstance(expr, IntImm | FloatImm):
            return np.asarray(expr.value, dtype=str(expr.ty.dtype))
        if isinstance(expr, relax.Var):
            if expr not in self.seen:
                bound = self.bindings.lookup_binding(expr)
                self.seen[expr] = None if bound is None else self.array(bound)
            return self.seen[expr]
        return self._call(expr) if isinstance(expr, relax.Call) else None

    def _call(self, call: relax.Call) -> Array | None:
        shape = static_shape(call)
        if name_of(call) not in arithmetic.TABLE or shape is None or prod(shape) > _MOST_ELEMENTS:
            return None
        args = self.operands(call)
        return None if args is None else _evaluated(args, call)

    def operands(self, call: relax.Call) -> list[Array] | None:
        """Return the values of a call's tensors, in order; None if one of them is not known."""
        if name_of(call) == "relax.shape_to_tensor":
            shape = self._shape(call.args[0])
            return None if shape is None else [shape]
        args: list[Array] = []
        for part in self.flat(call.args):
            found = self.array(part)
            if found is None:
                return None
            args.append(found)
        return args

    def flat(self, args: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Return the tensors in order, also those in tuples; shapes are read from the call's
        type."""
        found: list[relax.Expr] = []
        for arg in args:
            bound = self.bindings.lookup_binding(arg) if isinstance(arg, relax.Var) else arg
            if isinstance(bound, relax.Tuple):
                found += bound.fields
            elif not isinstance(bound, relax.ShapeExpr):
                found.append(arg)
        return found

    def _shape(self, expr: relax.Expr) -> Array | None:
        sizes = getattr(expr.ty, "values", None)
        if sizes is None or not all(isinstance(s, IntImm) for s in sizes):
            return None
        return np.array([int(s) for s in sizes], np.int64)
