"""Lets scatters over a value that is not read again write only the updates, into that value.

    z = scatter_copy(y, u), y not used after it  ->  y with u written over its part

An assigned slice is a small part of the tensor in most models (the boxes of a YOLO: 4 of 85
numbers); copying the rest was the cost. The pass runs after fusion, when the order of the kernels
is final and each of them is known to have its own result.
"""

from __future__ import annotations

from typing import TypeGuard

import tvm
from tvm import relax, tirx

from tvmscope.compiler.describe.sources import bindings
from tvmscope.compiler.graph.rewrite import flat, operator_name, replace_binding
from tvmscope.compiler.kernels.scatter import boxes

_END = 1 << 62


def write_in_place() -> tvm.transform.Pass:
    """Return the pass, for CPUs: a GPU's scatters are fused with the operators around them."""

    @tvm.transform.module_pass(opt_level=0, name="WriteInPlace")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        function = module["main"]
        if not any(_writes_boxes(b.value, module) for b in bindings(function)):
            return module
        chosen = _chosen(module, function)
        kernels = {var: module[var] for var in {_callee(call) for call in chosen.values()}}
        for var in kernels:  # a variable keeps its type: the new kernels get their own variables
            del module[var]
        rewriter = _InPlace(module, chosen)
        for var, kernel in kernels.items():
            rewriter.kernels[var] = rewriter.builder_.add_func(
                boxes.overwrite(kernel), var.name_hint
            )
        rewriter.builder_.update_func(module.get_global_var("main"), rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return transform


@relax.expr_functor.mutator
class _InPlace(relax.PyExprMutator):
    def __init__(self, module: tvm.IRModule, chosen: dict[relax.Var, relax.Call]) -> None:
        super().__init__(module)
        self.chosen = chosen
        self.kernels: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = self.chosen.get(binding.var)
        if call is None:
            super().visit_var_binding_(binding)
            return
        args = self.visit_expr(call.args[1])
        made = relax.op.call_tir_inplace(self.kernels[_callee(call)], args, 0, call.ty)
        replace_binding(self, binding.var, made)


def _chosen(module: tvm.IRModule, function: relax.Function) -> dict[relax.Var, relax.Call]:
    """Return the calls that may write in place; all calls of one kernel or none."""
    memory = _Memory(module, function)
    calls = {b.var: b.value for b in bindings(function) if _writes_boxes(b.value, module)}
    safe = {var for var, call in calls.items() if memory.is_free(var, call)}
    refused = {_callee(call) for var, call in calls.items() if var not in safe}
    return {var: call for var, call in calls.items() if _callee(call) not in refused}


def _writes_boxes(value: relax.Expr, module: tvm.IRModule) -> TypeGuard[relax.Call]:
    called = _kernel(module, value)
    return called is not None and boxes.BOXES in called.attrs


def _kernel(module: tvm.IRModule, value: relax.Expr) -> tirx.PrimFunc | None:
    if not isinstance(value, relax.Call) or operator_name(value) != "relax.call_tir":
        return None
    kernel: tirx.PrimFunc = module[_callee(value)]
    return kernel


def _callee(call: relax.Call) -> tvm.ir.GlobalVar:
    """Return the variable of the kernel that a `call_tir` calls."""
    callee = call.args[0]
    assert isinstance(callee, tvm.ir.GlobalVar)
    return callee


class _Memory:
    """Which variables may share memory, and the last position where any of them is read."""

    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        self.module = module
        self.roots: dict[relax.Expr, relax.Expr] = {}
        self.owned: set[relax.Expr] = set()
        self.last: dict[relax.Expr, int] = {}
        self.places: dict[relax.Var, int] = {}
        for index, binding in enumerate(bindings(function)):
            self.places[binding.var] = index
            self._see(binding.var, binding.value, index)
        for var in _variables(function.body.body):
            self.last[self.root(var)] = _END

    def root(self, value: relax.Expr) -> relax.Expr:
        return self.roots.get(value, value)

    def is_free(self, var: relax.Var, call: relax.Call) -> bool:
        """Whether the data of a scatter is a kernel's own result, and read here for the last time.

        The updates must not share memory with it.
        """
        data, *updates = flat([call.args[1]])
        root = self.root(data)
        apart = all(self.root(u) != root for u in updates if isinstance(u, relax.Var))
        return apart and root in self.owned and self.last[root] == self.places[var]

    def _see(self, var: relax.Var, value: relax.Expr, place: int) -> None:
        kernel = _kernel(self.module, value)
        used = list(_variables(value))
        for other in used:
            # anything but a kernel may keep the value: then it is never free
            self.last[self.root(other)] = max(
                place if kernel is not None else _END, self.last.get(self.root(other), 0)
            )
        if kernel is None or not isinstance(value.ty, relax.TensorType):
            return
        if relax.analysis.has_reshape_pattern(kernel):  # becomes a view of its argument
            self.roots[var] = self.root(used[0]) if used else var
        else:
            self.owned.add(var)


def _variables(value: relax.Expr) -> list[relax.Var]:
    found: list[relax.Var] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            found.append(expr)

    relax.analysis.post_order_visit(value, visit)
    return found
