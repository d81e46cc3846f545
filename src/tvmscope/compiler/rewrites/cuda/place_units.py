"""Replaces convolutions, products, attention, norms and pools by generated CUDA kernels.

    relu(conv(x, w) + b + y) -> one kernel        (`compiler/units` says what belongs to one)

What no kernel of ours computes stays for TVM's own lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.describe.sources import labels
from tvmscope.compiler.graph.rewrite import replace_binding, static_shape
from tvmscope.compiler.units import emit, match, pools
from tvmscope.compiler.units.found import Found, Operand
from tvmscope.cuda.config import Config
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.units import Attention, Conv2d, Math, Matmul, Tensor, Unit

Choose = Callable[[Unit], Config | None]
"""Returns the configuration of a unit; None leaves it to TVM."""


def place_units(
    choose: Choose,
    *,
    prefers: pools.Prefers | None = None,
    convolve: Math | None = None,
    multiply: Math | None = None,
    fused: bool = True,
) -> tvm.transform.Pass:
    """Return the pass. `prefers` says when a convolution computes the pool behind it, `convolve`
    how convolutions multiply float32, `multiply` how everything does; `fused` computes the
    following operators in the same kernel."""

    @tvm.transform.module_pass(opt_level=0, name="PlaceUnits")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        found = match.find(module["main"], fused=fused)
        found = [_multiplied(unit, convolve, multiply) for unit in found]
        if fused and prefers is not None:
            found = pools.join(module["main"], found, prefers)
        chosen = [(unit, config) for unit in found if (config := choose(unit.unit)) is not None]
        placer = _Placer(module, chosen)
        placed = placer.visit_expr(module["main"])
        placer.builder_.update_func(module.get_global_var("main"), placed)
        return relax.transform.DeadCodeElimination()(placer.builder_.get())

    return transform


def _multiplied(found: Found, convolve: Math | None, multiply: Math | None) -> Found:
    """Return the unit with another multiplication mode, if one is requested."""
    unit = found.unit
    if multiply is not None and isinstance(unit, Conv2d | Matmul | Attention):
        return replace(found, unit=replace(unit, math=multiply))
    if convolve is not None and isinstance(unit, Conv2d) and unit.dtype == "float32":
        return replace(found, unit=replace(unit, math=convolve))
    return found


@mutator
class _Placer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, chosen: list[tuple[Found, Config]]) -> None:
        super().__init__(module)
        # a kept sum may be read before the rest of its unit: all of it is computed in its place
        self.ends = {found.first: (found, config) for found, config in chosen}
        self.inside = {v for found, _ in chosen for v in found.hidden}
        self.results: dict[relax.Var, relax.Expr] = {}
        """Results of units whose kept sum came first."""
        self.emitted: list[tuple[relax.Call, relax.Var]] = []
        """Operands that are computed for units, such as a cast mask: several may read one."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Bind a unit's last value to its kernel; values inside the unit are not computed."""
        if binding.var in self.inside:
            return
        if binding.var in self.ends:
            found, config = self.ends[binding.var]
            self.results |= self._place(found, config)
        if binding.var in self.results:
            replace_binding(self, binding.var, self.results.pop(binding.var))
            return
        super().visit_var_binding_(binding)

    def _place(self, found: Found, config: Config) -> dict[relax.Var, relax.Expr]:
        """Return the kernel's results by the variables that they replace, in their form."""
        tensors = emit.arguments(found.unit, config)
        wanted = static_shape(found.last) or ()
        written = found.written or wanted
        shapes: emit.Shapes = {"output": written}
        if found.kept is not None:
            shapes["sum"] = static_shape(found.kept) or ()
        given = []
        for tensor in tensors:
            if tensor.role in emit.OUTPUTS:
                continue
            value = self._operand(found, config, tensor)
            shapes[tensor.role] = static_shape(value) or ()
            given.append(value)
        outputs = [t for t in tensors if t.role in emit.OUTPUTS]
        outputs.sort(key=lambda t: emit.OUTPUTS.index(t.role))
        types = [relax.TensorType(shapes.get(t.role, t.shape), t.dtype) for t in outputs]
        function = self.builder_.add_func(
            emit.function(found.unit, config, shapes), emit.hint(found.unit)
        )
        name = _name(found)
        call = relax.op.call_tir(function, given, types if len(types) > 1 else types[0])
        result = self.builder_.emit(call, name)
        results: dict[relax.Var, relax.Expr] = {}
        if found.kept is not None:
            at = [t.role for t in outputs].index("sum")
            results[found.kept] = self.builder_.emit(relax.TupleGetItem(result, at), name)
        if len(types) > 1:
            result = self.builder_.emit(relax.TupleGetItem(result, 0), name)
        dtype = str(found.last.ty.dtype)
        results[found.last] = self._as_before(found, result, wanted, dtype, name)
        return results

    def _as_before(
        self, found: Found, result: relax.Var, wanted: tuple[int, ...], dtype: str, name: str
    ) -> relax.Var:
        """Return the kernel's output in the form that the rest of the program expects."""
        if found.permuted is not None:
            result = self.builder_.emit(relax.op.permute_dims(result, found.permuted), name)
        if static_shape(result) != wanted:
            result = self.builder_.emit(relax.op.reshape(result, wanted), name)
        if str(result.ty.dtype) != dtype:
            result = self.builder_.emit(relax.op.astype(result, dtype), name)
        return result

    def _operand(self, found: Found, config: Config, tensor: Tensor) -> relax.Expr:
        role, shape = tensor.role, tensor.shape
        if role == "counters":
            return relax.const(np.zeros(shape, "int32"))
        value: Operand = found.operands[role]
        if isinstance(value, np.ndarray):
            packed = pack_weight(found.unit, config, value) if role == "weight" else value
            return relax.const(np.ascontiguousarray(packed.astype(tensor.dtype, copy=False)))
        visited = self.visit_expr(value)
        if isinstance(visited, relax.Call):
            visited = self._shared(visited)
        if prod(static_shape(visited) or ()) < prod(shape):
            raise ValueError(f"{found.unit.label}: {role} is smaller than its kernel reads")
        return visited

    def _shared(self, call: relax.Call) -> relax.Var:
        """Return the call's value, which is computed once."""
        for known, var in self.emitted:
            if tvm_ffi.structural_equal(known, call):
                return var
        self.emitted.append((call, self.builder_.emit(call)))
        return self.emitted[-1][1]


def _name(found: Found) -> str:
    """Name the binding after all the source operators that it computes."""
    sources = sorted({i for var in found.replaced for i in labels(var)})
    return f"src{'_'.join(map(str, sources))}s" if sources else found.last.name
