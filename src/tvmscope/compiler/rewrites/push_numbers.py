"""Moves numbers behind an activation to where a kernel has them for nothing.

    relu(x) + 0.1      ->  clip(x + 0.1, 0.1, inf)
    silu(x) * 1.7 @ w  ->  silu(x) @ (w * 1.7)

NFNet and HGNet have them. A number in front of a limit is part of a bias, and a factor of a
product's or convolution's input is part of its weights; behind an activation, which ends a kernel,
they would have a kernel of their own. A factor stays where a weight would become too small or large
for half precision.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.describe.sources import bindings
from tvmscope.compiler.graph.rewrite import operator_name, replace_binding, static_shape
from tvmscope.compiler.rewrites.fold_scales import LARGEST_HALF, SMALLEST_HALF
from tvmscope.compiler.units.graph import constant, scalar, variables

Array = np.ndarray[Any, Any]
_WEIGHTED = ("relax.nn.conv2d", "relax.matmul")


@mutator
class _Push(PyExprMutator):
    def __init__(self, module: tvm.IRModule, function: relax.Function, half: bool) -> None:
        super().__init__(module)
        made = list(bindings(function))
        self.uses = Counter(v for b in made for v in variables(b.value))
        self.calls = {b.var: b.value for b in made if isinstance(b.value, relax.Call)}
        self.sizes = (SMALLEST_HALF, LARGEST_HALF) if half else (0.0, np.finfo(np.float32).max)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call, found = binding.value, None
        if isinstance(call, relax.Call) and getattr(call.ty, "dtype", None) == "float32":
            if operator_name(call) in _WEIGHTED:
                found = self._weighted(call)
            elif operator_name(call) == "relax.add":
                found = self._limited(call)
        if found is None:
            super().visit_var_binding_(binding)
        else:
            replace_binding(self, binding.var, found)

    def _alone(self, value: relax.Expr, *names: str) -> relax.Call | None:
        """Return the call that makes a value, which has one reader, if it is one of these."""
        if not isinstance(value, relax.DataflowVar) or self.uses[value] != 1:
            return None
        call = self.calls.get(value)
        return call if call is not None and operator_name(call) in names else None

    def _weighted(self, call: relax.Call) -> relax.Expr | None:
        """Return a product or convolution of what its input multiplies by a number."""
        scaled = self._alone(call.args[0], "relax.multiply")
        weight = call.args[1]
        if scaled is None or not isinstance(weight, GenericConst):
            return None
        for data, other in (scaled.args, reversed(scaled.args)):
            number = _number(other)
            if not number or static_shape(data) != static_shape(scaled):
                continue
            array = weight.value.numpy() * np.float32(number)
            least, most = self.sizes
            if np.sqrt(np.mean(np.square(array, dtype=np.float64))) < least:
                return None
            if not np.abs(array).max() <= most:
                return None
            given = [self.visit_expr(data), relax.const(array, "float32")]
            return relax.Call(call.op, given, call.attrs)
        return None

    def _limited(self, call: relax.Call) -> relax.Expr | None:
        """Return the sum of a limit and a number as a limit of the sum."""
        for data, other in (call.args, reversed(call.args)):
            limit, number = self._alone(data, "relax.nn.relu", "relax.clip"), _number(other)
            if limit is None or number is None or static_shape(data) != static_shape(call):
                continue
            limits = [0.0, np.inf] if len(limit.args) == 1 else [scalar(a) for a in limit.args[1:]]
            low, high = limits
            if low is None or high is None or not self._takes_bias(limit.args[0]):
                return None
            moved = relax.op.add(self.visit_expr(limit.args[0]), relax.const(number, "float32"))
            return relax.op.clip(self.builder_.emit(moved), low + number, high + number)
        return None

    def _takes_bias(self, value: relax.Expr) -> bool:
        """Whether a product or convolution computes the value, perhaps with a bias."""
        biased = self._alone(value, "relax.add")
        terms = [value] if biased is None else biased.args
        return any(self._alone(term, *_WEIGHTED) is not None for term in terms)


def _number(value: relax.Expr) -> float | None:
    """Return the one finite number that a constant consists of."""
    array = constant(value)
    if array is None:
        return scalar(value)
    first = float(array.flat[0]) if array.size else np.nan
    return first if np.isfinite(first) and (array == first).all() else None


def push_numbers(*, half: bool) -> tvm.transform.Pass:
    """Return the pass; `half` for a model that will be computed in half precision."""

    @tvm.transform.module_pass(opt_level=0, name="PushNumbers")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Push(module, function, half).visit_expr(function))
        return relax.transform.DeadCodeElimination()(module)

    return transform
