"""Evaluates parts of a graph that depend on no input, such as index arithmetic.

FoldConstant does not fold them: exporters build indices from shapes, ranges and broadcasts, and the
result may be far larger than its operands, so it is evaluated only where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import FloatImm, IntImm

from tvmscope.compiler.graph import arithmetic
from tvmscope.compiler.graph.arithmetic import Array, Evaluate
from tvmscope.compiler.graph.rewrite import static_shape

_MOST_ELEMENTS = 1 << 26
"""Larger index tensors than this are not evaluated."""


class Bindings(Protocol):
    """What knows the definitions of variables: a rewriting pass, or a graph of units."""

    def lookup_binding(self, var: relax.Var, /) -> relax.Expr | None:
        """Return what a variable is bound to; None for a function's parameter."""


def value(bindings: Bindings, expr: relax.Expr) -> Array | None:
    """Return the array that an expression always evaluates to, or None."""
    return _Evaluator(bindings).array(expr)


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
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        evaluate = _INDEXING.get(name) or arithmetic.TABLE.get(name)
        if evaluate is None or shape is None or prod(shape) > _MOST_ELEMENTS:
            return None
        if name == "relax.shape_to_tensor":
            return self._shape(call.args[0])
        args: list[Array] = []
        for part in self._flat(call.args):
            found = self.array(part)
            if found is None:
                return None
            args.append(found)
        result = np.asarray(evaluate(args, call))
        fits = result.shape == shape and str(result.dtype) == str(call.ty.dtype)
        return result if fits else None

    def _flat(self, args: Sequence[relax.Expr]) -> list[relax.Expr]:
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


def _slice(args: Sequence[Array], call: relax.Call) -> Array:
    """Return the tensor, then axes, begins, ends and, if given, strides, each a number."""
    data, rest = args[0], [int(a) for a in args[1:]]
    parts = len(call.args) - 1
    count = len(rest) // parts
    axes, begins, ends = (rest[n * count : (n + 1) * count] for n in range(3))
    strides = rest[3 * count :] or [1] * count
    taken = [slice(None)] * data.ndim
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        taken[axis] = slice(begin, end, stride)
    return data[tuple(taken)]


def _joined(args: Sequence[Array], call: relax.Call) -> Array:
    axis = call.attrs.axis
    return np.concatenate(args, axis=None if axis is None else int(axis))


def _range(args: Sequence[Array], call: relax.Call) -> Array:
    return np.arange(*(a.item() for a in args)).astype(str(call.ty.dtype))


def _filled(args: Sequence[Array], call: relax.Call) -> Array:
    return np.full(static_shape(call) or (), args[-1].item(), str(call.ty.dtype))


_INDEXING: dict[str, Evaluate] = {
    "relax.tril": lambda a, c: np.tril(a[0], int(a[1])),
    "relax.triu": lambda a, c: np.triu(a[0], int(a[1])),
    "relax.shape_to_tensor": lambda a, c: a[0],
    "relax.strided_slice": _slice,
    "relax.concat": _joined,
    "relax.stack": lambda a, c: np.stack(a, int(c.attrs.axis or 0)),
    "relax.arange": _range,
    "relax.full": _filled,
    "relax.less": lambda a, c: a[0] < a[1],
    "relax.greater_equal": lambda a, c: a[0] >= a[1],
    "relax.where": lambda a, c: np.where(a[0], a[1], a[2]),
    "relax.flatten": lambda a, c: a[0].reshape(-1),
}
