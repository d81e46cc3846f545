"""Makes the large constants of a finished main function its last parameters.

It comes after everything else: parameters are checked at the start of each run by code that an
earlier pass has written by now, and these need no check.
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
"""Smaller ones stay: a parameter costs some nanoseconds in each run, and they take no memory."""


@mutator
class _Lift(PyExprMutator):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.weights: dict[GenericConst, tuple[relax.Var, Array]] = {}

    def visit_generic_const_(self, const: GenericConst) -> relax.Expr:
        if const not in self.weights:
            array = const.value.numpy() if isinstance(const.ty, relax.TensorType) else None
            if array is None or array.nbytes < SMALLEST_BYTES or array.dtype.kind not in "fiu":
                return const
            var = relax.Var(f"weight{len(self.weights)}", const.ty)
            self.weights[const] = var, array
        return self.weights[const][0]


def lift_weights(module: tvm.IRModule) -> tuple[tvm.IRModule, list[Array]]:
    """The module whose main function takes its weights behind its inputs, and the weights."""
    lift, main = _Lift(module), module["main"]
    body = lift.visit_expr(main.body)
    params = [*main.params, *(var for var, _ in lift.weights.values())]
    lifted = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
    module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    module.update_func(module.get_global_var("main"), lifted)
    return module, [array for _, array in lift.weights.values()]
