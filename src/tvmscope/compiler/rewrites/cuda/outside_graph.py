"""Keeps calls into a framework out of CUDA graphs.

    y = R.call_packed("tvmscope.fallback.region_1", x)
->  y = fallback_region_1(x)    # a Relax function that makes the same call

A framework may allocate, copy to the host and wait: none of this can be captured.
`RewriteCUDAGraph` captures every packed call whose arguments have fixed addresses, and no call of a
Relax function. So a graph ends before such a call, and the next one begins behind it.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.core.artifact import FALLBACK

_CAPTURE = "cuda_graph_capture"
"""In the names of the functions that TVM captures."""


def outside_graph() -> tvm.transform.Pass:
    """The pass; it runs directly before the one that makes graphs."""

    @tvm.transform.module_pass(opt_level=0, name="OutsideGraph")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        main = module.get_global_var("main")
        outliner = _Outliner(module)
        changed = outliner.visit_expr(module[main])
        outliner.builder_.update_func(main, changed)
        return outliner.builder_.get()

    return transform


def captured_parts(module: tvm.IRModule) -> set[str]:
    """The packed functions of parts that a CUDA graph would capture, which must be none."""
    found: set[str] = set()

    def note(value: relax.Expr) -> None:
        name = str(getattr(value, "global_symbol", ""))
        if isinstance(value, relax.ExternFunc) and name.startswith(FALLBACK):
            found.add(name)

    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and _CAPTURE in variable.name_hint:
            relax.analysis.post_order_visit(function, note)
    return found


@mutator
class _Outliner(PyExprMutator):
    """Replaces each call by one of a function that makes it."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        called = super().visit_call_(call)
        if not isinstance(called, relax.Call) or not isinstance(called.op, relax.ExternFunc):
            return called
        name = str(called.op.global_symbol)
        if not name.startswith(FALLBACK):
            return called
        hint = f"fallback_{name.removeprefix(FALLBACK)}"
        function = self.builder_.add_func(_wrapper(called), hint)
        return relax.Call(function, called.args)


def _wrapper(call: relax.Call) -> relax.Function:
    """A function of the call's arguments that returns what it returns."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"a{i}", argument.ty) for i, argument in enumerate(call.args)]
    with builder.function("fallback", params, attrs={"relax.force_pure": True}, private=True):
        same = relax.Call(call.op, params, call.attrs, call.ty_args)
        builder.emit_func_output(builder.emit(same))
    made = builder.get()["fallback"]
    assert isinstance(made, relax.Function)
    return made
