"""Memory that a kernel's launches share becomes a result that nothing reads.

TVM takes such memory from a pool when the kernel is called, and the pool may free it for a larger
block later, while a CUDA graph still holds its address. Results are planned with all other memory.
"""

from __future__ import annotations

import tvm
from tvm import relax, s_tir, tirx


def workspaces_as_results() -> tvm.transform.Pass:
    """Return the pass; it expects scheduled kernels that are still called by value."""

    @tvm.transform.module_pass(opt_level=0, name="WorkspacesAsResults")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        builder = relax.BlockBuilder()  # a variable's type is that of its function
        shared, names = {}, {}
        for var, func in module.functions_items():
            made = _as_params(func) if isinstance(func, tirx.PrimFunc) else None
            if made is not None:
                names[var.name_hint] = builder.add_func(made[0], var.name_hint), made[1]
                shared[var.name_hint] = made[0]
        if not shared:
            return module
        mutator = _Calls(module, names)
        functions = dict[tvm.ir.GlobalVar, tvm.ir.BaseFunc]()
        for var, func in module.functions_items():
            if var.name_hint in shared:
                functions[names[var.name_hint][0]] = shared[var.name_hint]
            elif isinstance(func, relax.Function):
                functions[var] = mutator.visit_expr(func)
            else:
                functions[var] = func
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    return transform


def _as_params(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Buffer]] | None:
    """Return a function that is given its buffers in the device's memory, and those."""
    realize = func.body
    if not isinstance(realize, s_tir.SBlockRealize):
        return None
    root = realize.block
    kept = [b for b in root.alloc_buffers if str(b.scope()) in ("", "global")]
    if not kept:
        return None
    left = [b for b in root.alloc_buffers if not any(b.same_as(other) for other in kept)]
    block = s_tir.SBlock(
        root.iter_vars, root.reads, root.writes, root.name_hint, root.body, init=root.init,
        alloc_buffers=left, annotations=root.annotations,
    )  # fmt: skip
    body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
    return tirx.PrimFunc([*func.params, *kept], body, func.ret_type, func.attrs), kept


@relax.expr_functor.mutator
class _Calls(relax.PyExprMutator):
    """Makes calls of such kernels return their memory, too, and takes the first result."""

    def __init__(
        self,
        module: tvm.IRModule,
        names: dict[str, tuple[tvm.ir.GlobalVar, list[tirx.Buffer]]],
    ) -> None:
        super().__init__(module)
        self._names = names

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Change one call."""
        if call.op != tvm.ir.Op.get("relax.call_tir"):
            return call
        kernel = call.args[0]
        assert isinstance(kernel, tvm.ir.GlobalVar)  # as every call of a kernel has it
        found = self._names.get(kernel.name_hint)
        if found is None:
            return call
        var, kept = found
        (result,) = call.ty_args
        several = isinstance(result, relax.TupleType)
        own = list(result.fields) if isinstance(result, relax.TupleType) else [result]
        more = [relax.TensorType([int(d) for d in b.shape], str(b.dtype)) for b in kept]
        made = self.builder_.emit(
            relax.Call(call.op, [var, *call.args[1:]], call.attrs, [relax.TupleType([*own, *more])])
        )
        if not several:
            return relax.TupleGetItem(made, 0)
        return relax.Tuple([relax.TupleGetItem(made, i) for i in range(len(own))])
