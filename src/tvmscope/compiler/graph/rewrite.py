"""Code that the rewriting passes share: a mutator with one function per operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import tvm
from tvm import relax, te
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

OUT_ELEMENTWISE_FUSABLE = 4
"""TVM's OpPatternKind of an operator that elementwise ones may be fused into."""

Handler = Callable[["Rewriter", relax.Call], relax.Expr | None]
"""Returns the replacement of a call, or None to keep it."""
Compute = Callable[..., te.Tensor | list[te.Tensor]]
"""Makes tensors from tensors: a kernel that `call_te` takes."""


@mutator
class Rewriter(PyExprMutator):
    """Passes each call of a known operator to its handler; keeps everything else."""

    def __init__(self, module: tvm.IRModule, handlers: Mapping[str, Handler]) -> None:
        super().__init__(module)
        self.handlers = handlers
        self._binding = ""

    def emit(self, value: relax.Expr) -> relax.Var:
        """Bind a value that a handler needs, under the name of the binding that it rewrites: names
        tell source operators (`describe/sources.py`)."""
        return self.builder_.emit(value, self._binding)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._binding = binding.var.name
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        handler = self.handlers.get(call.op.name) if isinstance(call.op, tvm.ir.Op) else None
        replaced = handler(self, call) if handler is not None else None
        return call if replaced is None else replaced


def rewrite_calls(name: str, handlers: Mapping[str, Handler]) -> tvm.transform.Pass:
    """Return a pass that applies `handlers` to all Relax functions of a module."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        rewriter = Rewriter(module, handlers)
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(var, rewriter.visit_expr(function))
        return relax.transform.DeadCodeElimination()(rewriter.builder_.get())

    return transform


def bound_call(rewriter: Rewriter, value: relax.Expr, name: str) -> relax.Call | None:
    """Return the call that produced `value`, if it calls the operator `name`."""
    bound = rewriter.lookup_binding(value) if isinstance(value, relax.Var) else value
    if isinstance(bound, relax.Call) and isinstance(bound.op, tvm.ir.Op):
        return bound if bound.op.name == f"relax.{name}" else None
    return None


def operator_name(value: relax.Expr) -> str:
    """Return the name of the operator that a call calls; empty for any other expression."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return value.op.name
    return ""


def static_shape(value: relax.Expr) -> tuple[int, ...] | None:
    """Return the shape of a tensor if it is completely known."""
    shape = getattr(value.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    if not all(isinstance(d, tvm.tirx.IntImm) for d in shape.values):
        return None
    return tuple(int(d) for d in shape.values)


def flat(args: Iterable[relax.Expr]) -> list[relax.Expr]:
    """Return the arguments with tuples replaced by their fields."""
    return [f for a in args for f in (a.fields if isinstance(a, relax.Tuple) else [a])]


def with_vars(value: relax.Expr, of: Callable[[relax.Var], relax.Expr]) -> relax.Expr:
    """Return the bound expression with every variable replaced by `of(variable)`."""
    if isinstance(value, relax.Var):
        return of(value)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([with_vars(f, of) for f in value.fields])
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(with_vars(value.tuple_value, of), value.index)
    if isinstance(value, relax.Call):
        args = [with_vars(a, of) for a in value.args]
        return relax.Call(value.op, args, value.attrs, value.ty_args)
    return value


def is_scalar(value: relax.Expr) -> bool:
    """Whether the expression is a single number, written in the graph."""
    return isinstance(value, tvm.tirx.FloatImm | tvm.tirx.IntImm) or (
        isinstance(value, GenericConst) and value.value.numpy().ndim == 0
    )


def coordinates(
    emit: Callable[[relax.Expr], relax.Var], indices: Iterable[relax.Expr], shape: tuple[int, ...]
) -> relax.Var:
    """Return index tensors, broadcast to `shape` and stacked, as scatter_nd takes them."""
    wide = (emit(relax.op.astype(i, "int64")) for i in indices)
    return emit(relax.op.stack([emit(relax.op.broadcast_to(i, shape)) for i in wide], len(shape)))


def replace_binding(mutator: relax.PyExprMutator, var: relax.Var, value: relax.Expr) -> None:
    """Replace `var` by `value`; an output of a dataflow block stays one."""
    builder = mutator.builder_
    leaves = not isinstance(var, relax.DataflowVar) and builder.current_block_is_dataflow()
    if leaves:
        mutator.set_var_remap(var, builder.emit_output(value, name_hint=var.name))
    elif isinstance(value, relax.Var):
        mutator.set_var_remap(var, value)
    else:
        mutator.set_var_remap(var, builder.emit(value, name_hint=var.name))
