"""Folds constant arithmetic with numpy.

Relax's own FoldConstant compiles a kernel with LLVM for every constant operation: for the 50
folded batch norms of a ResNet that is 450 compilations. Batch-norm folding and importers leave
arithmetic of a few operators, which numpy evaluates at once. Operators that are not in the table
are left to FoldConstant.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph import known
from tvmscope.compiler.graph.rewrite import static_shape

MOST_ELEMENTS_GROWN = 1 << 16
"""A broadcast that makes a constant larger than this is cheaper at run time."""


@mutator
class _Fold(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if known.name_of(call) in known.WRITTEN and prod(static_shape(call) or ()) > 1:
            return call
        value = known.folded(self, call, MOST_ELEMENTS_GROWN)
        # by default a constant narrows int64 and float64
        return call if value is None else relax.const(value, str(value.dtype))


def fold_numpy() -> tvm.transform.Pass:
    """Return the pass over all Relax functions of a module; unused bindings are removed."""

    @tvm.transform.module_pass(opt_level=0, name="FoldNumpy")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Fold(module).visit_expr(function))
        return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(module))

    return transform
