"""Replaces permutations and reshapes that together move nothing by one reshape.

reshape(permute(reshape(x))) -> reshape(x)      where the elements keep their order
take(x, 1, axis=2)           -> reshape(x[:, :, 1:2])    which fuses into elementwise kernels
take(x, [1, 3, 5])           -> reshape(x[1:6:2])
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import replace_binding, static_shape
from tvmscope.compiler.units.graph import Graph, name_of
from tvmscope.compiler.units.views import taken, trace

_MOVES = ("permute_dims", "reshape", "expand_dims", "squeeze", "flatten", "take")


@mutator
class _Collapse(PyExprMutator):
    def __init__(self, module: tvm.IRModule, graph: Graph) -> None:
        super().__init__(module)
        self.graph = graph

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Replace a move whose view is dense by a reshape of the viewed value."""
        value, shape = binding.value, static_shape(binding.var)
        if isinstance(value, relax.Call) and name_of(value) in _MOVES and shape is not None:
            view = trace(self.graph, binding.var)
            if view is not None and view.dense and view.base != binding.var:
                new = relax.op.reshape(self.visit_expr(view.base), shape)
                replace_binding(self, binding.var, new)
                return
            if (indices := taken(value)) is not None:
                axis, data = int(value.attrs.axis), self.visit_expr(value.args[0])
                limits = [indices.start], [indices.stop], [indices.step]
                part = self.builder_.emit(
                    relax.op.strided_slice(data, [axis], *limits), binding.var.name
                )
                replace_binding(self, binding.var, relax.op.reshape(part, shape))
                return
        super().visit_var_binding_(binding)


def collapse_views() -> tvm.transform.Pass:
    """Return the pass."""

    @tvm.transform.module_pass(opt_level=0, name="CollapseViews")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        rewriter = _Collapse(module, Graph(module["main"]))
        changed = rewriter.visit_expr(module["main"])
        rewriter.builder_.update_func(module.get_global_var("main"), changed)
        return relax.transform.DeadCodeElimination()(rewriter.builder_.get())

    return transform
