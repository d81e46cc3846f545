"""Multiplies a constant factor per channel into the weights that made the channels.

    (x @ w + b) * g                  ->  x @ (w * g) + b * g
    permute(reshape(x @ w + b)) * g  ->  permute(reshape(x @ (w * g) + b * g))
    y + (x @ w + b) * 0.2            ->  y + (x @ (w * 0.2) + b * 0.2)
    clip(x @ w + b, 0, 6) * 0.5      ->  clip(x @ (w * 0.5) + b * 0.5, 0, 3)

Such factors are layer scales, as in ConvNeXt and CaiT, or one number, as in Granite and in hard
sigmoids. They stand between a product and the sum with the residual, which a kernel can then
compute together. A factor stays where the weights of a channel would become too small for half
precision.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst, Var
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.describe.sources import bindings
from tvmscope.compiler.graph.rewrite import operator_name, replace_binding, static_shape
from tvmscope.compiler.units.graph import scalar, variables

Array = np.ndarray[Any, Any]
_LIMITS = ("relax.nn.relu", "relax.clip")
SMALLEST_HALF = 2.0**-12
"""The least root mean square of a channel's weights in half precision: float16 keeps ten bits down
to 2^-14."""

LARGEST_HALF = 2.0**12
"""Larger weights leave sums little room below 65504."""


@mutator
class _Fold(PyExprMutator):
    def __init__(self, module: tvm.IRModule, function: relax.Function, smallest: float) -> None:
        super().__init__(module)
        made = list(bindings(function))
        self.uses = Counter(v for b in made for v in variables(b.value))
        self.made = {b.var: b.value for b in made}
        self.readers: dict[relax.Var, list[str]] = defaultdict(list)
        for b in made:
            for var in variables(b.value):
                self.readers[var].append(operator_name(b.value))
        self.smallest = smallest

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        found = self._product(binding.value)
        found = self._multiple(binding) if found is None else found
        if found is None:
            super().visit_var_binding_(binding)
        else:
            replace_binding(self, binding.var, found)

    def _product(self, value: relax.Expr) -> relax.Expr | None:
        """Return a multiplication without its factor, if the weights can take it."""
        if not isinstance(value, relax.Call) or operator_name(value) != "relax.multiply":
            return None
        for data, other in (value.args, reversed(value.args)):
            found = per_channel(other, static_shape(value))
            if found is not None and static_shape(data) == static_shape(value):
                return self._scaled(data, *found)
        return None

    def _multiple(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a multiplication by a number without it, if only a sum reads it, or if a limit is
        before it."""
        value, shape = binding.value, static_shape(binding.var)
        if not isinstance(value, relax.Call) or operator_name(value) != "relax.multiply":
            return None
        if not shape:
            return None
        for data, other in (value.args, reversed(value.args)):
            number, made = scalar(other), self.made.get(data) if isinstance(data, Var) else None
            limited = made is not None and operator_name(made) in _LIMITS
            summed = self.readers[binding.var] == ["relax.add"]
            if number is not None and static_shape(data) == shape and (limited or summed):
                axes = (len(shape) - 1, 1) if len(shape) > 1 else (0,)
                found = (self._scaled(data, n, np.full(shape[n], number)) for n in axes)
                return next((each for each in found if each is not None), None)
        return None

    def _scaled(self, value: relax.Expr, axis: int, factor: Array) -> relax.Expr | None:
        """Return `value` times a factor along an axis, without a multiplication."""
        if not isinstance(value, relax.DataflowVar) or self.uses[value] != 1:
            return None
        call, shape = self.made.get(value), static_shape(value)
        if not isinstance(call, relax.Call) or shape is None:
            return None
        name = operator_name(call)
        if name in ("relax.matmul", "relax.nn.conv2d"):
            return self._weighted(call, name, axis, factor)
        if name in ("relax.permute_dims", "relax.reshape"):
            return self._moved(call, name, axis, factor)
        if name in _LIMITS:
            return self._limited(call, axis, factor)
        if name != "relax.add":
            return None
        for data, other in (call.args, reversed(call.args)):
            if isinstance(other, GenericConst) and static_shape(data) == shape:
                inner = self._scaled(data, axis, factor)
                sides = [1] * len(shape)
                sides[axis] = len(factor)
                term = other.value.numpy() * factor.reshape(sides)
                if inner is None or term.size > np.prod(shape):
                    return None
                return relax.op.add(self.builder_.emit(inner), _like(term, other))
        return None

    def _limited(self, call: relax.Call, axis: int, factor: Array) -> relax.Expr | None:
        """Return a limit times one positive number."""
        number = float(factor[0])
        limits = [scalar(arg) for arg in call.args[1:]]
        if number <= 0 or (factor != number).any() or None in limits:
            return None
        inner = self._scaled(call.args[0], axis, factor)
        if inner is None:
            return None
        data = self.builder_.emit(inner)
        if operator_name(call) == "relax.nn.relu":
            return relax.Call(call.op, [data], call.attrs)
        low, high = (float(limit or 0.0) * number for limit in limits)
        return relax.op.clip(data, low, high)

    def _moved(self, call: relax.Call, name: str, axis: int, factor: Array) -> relax.Expr | None:
        given, shape = static_shape(call.args[0]), static_shape(call)
        if given is None or shape is None:
            return None
        if name == "relax.permute_dims":
            axes = call.attrs.axes
            order = [int(a) for a in axes] if axes is not None else list(range(len(shape)))[::-1]
            axis = order[axis]
        elif axis == len(shape) - 1 and given[-1] == shape[-1]:
            axis = len(given) - 1
        elif shape[: axis + 1] != given[: axis + 1]:
            return None
        inner = self._scaled(call.args[0], axis, factor)
        if inner is None:
            return None
        return relax.Call(call.op, [self.builder_.emit(inner), *call.args[1:]], call.attrs)

    def _weighted(self, call: relax.Call, name: str, axis: int, factor: Array) -> relax.Expr | None:
        data, weight = call.args
        if not isinstance(weight, GenericConst):
            return None
        array = weight.value.numpy()
        if name == "relax.matmul":
            taken = array.ndim == 2 and axis == len(static_shape(call) or ()) - 1
            sides: tuple[int, ...] = (1, len(factor))
        else:
            layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
            taken = layouts == ("NCHW", "OIHW") and axis == 1
            sides = (len(factor), 1, 1, 1)
        if not taken or array.dtype != np.float32:
            return None
        scaled = array.astype(np.float64) * factor.reshape(sides)
        others = tuple(i for i, side in enumerate(sides) if side == 1)
        size = np.sqrt(np.mean(scaled**2, axis=others))
        largest = LARGEST_HALF if self.smallest else np.finfo(np.float32).max
        if (size[factor != 0] < self.smallest).any() or not np.abs(scaled).max() <= largest:
            return None
        return relax.Call(call.op, [self.visit_expr(data), _like(scaled, weight)], call.attrs)


def per_channel(value: relax.Expr, shape: tuple[int, ...] | None) -> tuple[int, Array] | None:
    """Return the axis and the values of a constant that has one value for each channel."""
    if not isinstance(value, GenericConst) or shape is None:
        return None
    array = value.value.numpy()
    sides = (1,) * (len(shape) - array.ndim) + array.shape
    axes = [axis for axis, side in enumerate(sides) if side != 1]
    if len(axes) != 1 or len(sides) != len(shape):
        return None
    return axes[0], array.reshape(-1).astype(np.float64)


def _like(array: Array, constant: GenericConst) -> relax.Expr:
    dtype = str(constant.ty.dtype)
    return relax.const(np.ascontiguousarray(array.astype(dtype)), dtype)


def fold_scales(*, half: bool) -> tvm.transform.Pass:
    """Return the pass; `half` for a model that will be computed in half precision."""

    @tvm.transform.module_pass(opt_level=0, name="FoldScales")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        smallest = SMALLEST_HALF if half else 0.0
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Fold(module, function, smallest).visit_expr(function))
        return relax.transform.DeadCodeElimination()(module)

    return transform
