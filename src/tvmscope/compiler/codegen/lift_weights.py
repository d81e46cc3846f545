"""Makes the large constants of a finished main function its last parameters.

It runs after everything else: an earlier pass has already written the code that checks parameters
at the start of each run, and these parameters need no check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

Array = np.ndarray[Any, Any]
SMALLEST_BYTES = 4096
"""Smaller constants stay: a parameter costs some nanoseconds in each run, and they take no memory.
"""


Inner = dict[str, tuple[tvm.ir.GlobalVar, list[GenericConst]]]
"""Functions that already take their weights: the variable to call them by, and those weights."""


@mutator
class _Lift(PyExprMutator):
    def __init__(self, module: tvm.IRModule, inner: Inner) -> None:
        super().__init__(module)
        self.inner = inner
        self.weights: dict[GenericConst, tuple[relax.Var, Array]] = {}

    def visit_generic_const_(self, const: GenericConst) -> relax.Expr:
        if const not in self.weights:
            array = const.value.numpy() if isinstance(const.ty, relax.TensorType) else None
            if array is None or array.nbytes < SMALLEST_BYTES or array.dtype.kind not in "fiu":
                return const
            var = relax.Var(f"weight{len(self.weights)}", const.ty)
            self.weights[const] = var, array
        return self.weights[const][0]

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        name = getattr(call.op, "name_hint", "")
        if name not in self.inner:
            return self.visit_expr_post_order(call)
        callee, needed = self.inner[name]
        args = [self.visit_expr(a) for a in (*call.args, *needed)]
        return relax.Call(callee, args, call.attrs, call.ty_args)

    def function(self, function: relax.Function) -> relax.Function:
        """Return the function with its weights as its last parameters."""
        body = self.visit_expr(function.body)
        params = [*function.params, *(var for var, _ in self.weights.values())]
        return relax.Function(params, body, function.ret_ty, function.is_pure, function.attrs)


def lift_weights(module: tvm.IRModule) -> tuple[tvm.IRModule, list[Array]]:
    """Return the module whose main function takes its weights after its inputs, and the weights.

    The main function passes the weights of the functions that it calls on to them.
    """
    module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    functions = {v: f for v, f in module.functions_items() if isinstance(f, relax.Function)}
    inner: Inner = {}
    for old in sorted(functions, key=lambda v: v.name_hint == "main"):
        lift = _Lift(module, inner)
        lifted = lift.function(functions[old])
        var = tvm.ir.GlobalVar(old.name_hint)
        relax.expr._update_type(var, lifted.ty)
        del module[old]
        module[var] = lifted
        inner[old.name_hint] = var, list(lift.weights)
    return module, [array for _, array in lift.weights.values()]
