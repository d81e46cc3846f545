"""Folds constant arithmetic with numpy.

Relax's own FoldConstant compiles a kernel with LLVM for every constant operation: for the 50
folded batch norms of a ResNet that is 450 compilations. Batch-norm folding and importers leave
arithmetic of a few operators, which numpy evaluates at once. Operators that are not in the table
are left to FoldConstant.
"""

from __future__ import annotations

from math import prod

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.arithmetic import FLOAT_ONLY, TABLE, Array, shape_of

MOST_ELEMENTS_GROWN = 1 << 16
"""A broadcast that makes a constant larger than this is cheaper at run time."""


@mutator
class _Fold(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        operator = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        evaluate = TABLE.get(operator)
        if evaluate is None:
            return call
        found = [self._value(a) for a in call.args if not isinstance(a, relax.ShapeExpr)]
        arrays = [a for a in found if a is not None]
        if len(arrays) < len(found) or not _is_static(call):
            return call
        if operator in FLOAT_ONLY and arrays[0].dtype.kind != "f":
            return call
        if prod(shape_of(call)) > max(MOST_ELEMENTS_GROWN, *(a.size for a in arrays)):
            return call
        value = np.asarray(evaluate(arrays, call), order="C")  # ascontiguousarray adds an axis
        if value.shape != shape_of(call) or str(value.dtype) != str(call.ty.dtype):
            return call  # numpy's rules differ here: leave it to the compiler
        return relax.const(value, str(value.dtype))  # by default it narrows int64 and float64

    def _value(self, value: relax.Expr) -> Array | None:
        bound = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        if isinstance(bound, tvm.tirx.FloatImm | tvm.tirx.IntImm):
            return np.asarray(bound.value, dtype=str(bound.ty.dtype))
        return bound.value.numpy() if isinstance(bound, GenericConst) else None


def _is_static(call: relax.Call) -> bool:
    kind = call.ty
    return (
        isinstance(kind, relax.TensorType)
        and isinstance(kind.shape, relax.ShapeExpr)
        and all(isinstance(d, tvm.tirx.IntImm) for d in kind.shape.values)
    )


def fold_numpy() -> tvm.transform.Pass:
    """Return the pass over all Relax functions of a module; unused bindings are removed."""

    @tvm.transform.module_pass(opt_level=0, name="FoldNumpy")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Fold(module).visit_expr(function))
        return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(module))

    return transform
