"""Turns scalar operands into constant tensors, so that ToMixedPrecision can cast them.

TVM 0.27's ToMixedPrecision casts every operand of an operator that follows a half-precision one
and fails on scalars (`clip(x, 0.0, 6.0)` behind a convolution). Rules:

    add(x, 1e-5)     -> add(x, const(1e-5))          likewise subtract, multiply, divide, ...
    clip(x, lo, hi)  -> minimum(maximum(x, const(lo)), const(hi))
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx import FloatImm, IntImm

BINARY = frozenset(
    f"relax.{name}"
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)


@mutator
class _Rewrite(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = call.op.name if isinstance(call.op, tvm.ir.Op) else ""
        dtype = str(getattr(call.ty, "dtype", ""))
        if not dtype.startswith("float"):
            return call
        if name == "relax.clip":
            low, high = (_constant(a, dtype) for a in call.args[1:])
            if low is None or high is None:
                return call
            raised = self.builder_.emit(relax.op.maximum(call.args[0], low))
            return relax.op.minimum(raised, high)
        if name in BINARY:
            args = [_constant(a, dtype) or a for a in call.args]
            return relax.Call(call.op, args, call.attrs)
        return call


def _constant(value: relax.Expr, dtype: str) -> relax.Expr | None:
    return relax.const(value.value, dtype) if isinstance(value, FloatImm | IntImm) else None


def scalar_operands() -> tvm.transform.Pass:
    """Return the pass over all Relax functions of a module."""

    @tvm.transform.module_pass(opt_level=0, name="ScalarOperands")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Rewrite(module).visit_expr(function))
        return module

    return transform
