"""Lets TVM's mixed precision pass by the calls of operators that run in a framework.

    call_pure_packed(f, x)  ->  f(x)  ->  call_pure_packed(f, cast(x))

`ToMixedPrecision` wants a tensor of every argument, and the first one of such a call is a function.
A plain call of the function it leaves alone, and gives it its arguments in their own types.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import operator_name
from tvmscope.core.artifact import FALLBACK

_PURE, _DPS = "relax.call_pure_packed", "relax.call_dps_packed"


def around_framework_calls(step: tvm.transform.Pass) -> tvm.transform.Pass:
    """The pass with these calls as plain ones while it runs."""

    @tvm.transform.module_pass(opt_level=0, name="AroundFrameworkCalls")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        opener = _Opener(module)
        opened = _rewritten(opener, module)
        if not opener.forms:
            return step(module)
        done = step(opened)
        return _rewritten(_Closer(done, opener.forms), done)

    return transform


def _rewritten(mutated: PyExprMutator, module: tvm.IRModule) -> tvm.IRModule:
    main = module.get_global_var("main")
    mutated.builder_.update_func(main, mutated.visit_expr(module[main]))
    return mutated.builder_.get()


@mutator
class _Opener(PyExprMutator):
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.forms: dict[str, str] = {}
        """How each function was called."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        called = super().visit_call_(call)
        form = operator_name(called)
        if not isinstance(called, relax.Call) or form not in (_PURE, _DPS):
            return called
        function = called.args[0]
        name = str(getattr(function, "global_symbol", ""))
        if not name.startswith(FALLBACK):
            return called
        self.forms[name] = form
        given = called.args[1:]
        if form == _DPS:
            assert isinstance(given[0], relax.Tuple)
            given = given[0].fields
        return relax.Call(function, list(given), ty_args=[call.ty])


@mutator
class _Closer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, forms: dict[str, str]) -> None:
        super().__init__(module)
        self.forms = forms

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        called = super().visit_call_(call)
        if not isinstance(called, relax.Call):
            return called
        form = self.forms.get(str(getattr(called.op, "global_symbol", "")))
        if form is None:
            return called
        kind = called.ty_args[0]
        if form == _PURE:
            return relax.op.call_pure_packed(called.op, *called.args, ty_args=kind)
        fields = kind.fields if isinstance(kind, relax.TupleType) else [kind]
        kinds = [field for field in fields if isinstance(field, relax.TensorType)]
        return relax.op.call_dps_packed(called.op, relax.Tuple(list(called.args)), kinds)
