"""Computes a sum of convolutions of one input as one convolution.

    conv3x3(x, w) + conv1x1(x, v) + x * s  ->  conv3x3(x, w + v in the centre + s on its diagonal)

Blocks that are trained with several branches (RepVGG, MobileOne, RepViT, FastViT) have them still
if they are exported as they were trained. A branch is joined if its taps are taps of the largest
one, and its groups parts of that one's: the sum then costs what its largest convolution does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.describe.sources import bindings
from tvmscope.compiler.graph.rewrite import operator_name, replace_binding, static_shape
from tvmscope.compiler.rewrites.fold_scales import LARGEST_HALF, fold_scales, per_channel
from tvmscope.compiler.units.graph import variables

Array = np.ndarray[Any, Any]
_ADD = "relax.add"


@dataclass(frozen=True, kw_only=True)
class _Branch:
    """A convolution of `data`; `data` alone, or times a factor per channel, is one of 1x1 windows
    with as many groups as channels."""

    data: relax.Expr
    weight: Array
    """In double precision, [outputs, inputs of a group, rows, columns]."""
    groups: int
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    """Above and on the left."""
    dilation: tuple[int, ...] = (1, 1)
    call: relax.Call | None = None
    """The convolution, if it is one."""
    plain: bool = False
    """Whether it is `data` alone."""

    @property
    def cost(self) -> tuple[bool, int]:
        """The multiplications for an output."""
        return self.call is not None, self.weight[0].size

    def and_also(self, other: _Branch) -> _Branch | None:
        """Return the sum of both as a convolution of this one's form; None if the other's taps or
        groups have no place in it. Data alone is a sum that kernels compute anyway: it has a place
        among the few taps of a depthwise convolution."""
        parts, rest = divmod(other.groups, self.groups)
        rows, columns = (self._places(other, axis) for axis in (0, 1))
        if rest or self.stride != other.stride or rows is None or columns is None:
            return None
        if other.plain and self.weight.shape[1] > 1:
            return None
        weight = self.weight.copy()
        weight[:, :, np.array(rows)[:, None], columns] += _spread(other, parts)
        return replace(self, weight=weight)

    def _places(self, other: _Branch, axis: int) -> list[int] | None:
        """Return this window's rows (axis 0) or columns that read what the other's read."""
        ahead, step = self.padding[axis] - other.padding[axis], self.dilation[axis]
        at = [n * other.dilation[axis] + ahead for n in range(other.weight.shape[2 + axis])]
        last = (self.weight.shape[2 + axis] - 1) * step
        return [n // step for n in at] if all(n in range(0, last + 1, step) for n in at) else None


def _spread(branch: _Branch, parts: int) -> Array:
    """Return a weight whose groups are joined by `parts`, with zeros between them."""
    outputs, inputs, *window = branch.weight.shape
    wide = np.zeros((outputs, parts, inputs, *window))
    each = np.arange(outputs)
    wide[each, each // (outputs // branch.groups) % parts] = branch.weight
    return wide.reshape(outputs, parts * inputs, *window)


@mutator
class _Join(PyExprMutator):
    def __init__(self, module: tvm.IRModule, function: relax.Function, half: bool) -> None:
        super().__init__(module)
        made = list(bindings(function))
        self.calls = {b.var: b.value for b in made if isinstance(b.value, relax.Call)}
        self.uses = Counter(v for b in made for v in variables(b.value))
        self.largest = LARGEST_HALF if half else np.inf
        sums = {var: call for var, call in self.calls.items() if operator_name(call) == _ADD}
        self.inner = {v for var, s in sums.items() for v in s.args if self._is_part(v, var)}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        is_sum = operator_name(binding.value) == _ADD and binding.var not in self.inner
        found = self._joined(binding.var) if is_sum else None
        if found is None:
            super().visit_var_binding_(binding)
        else:
            replace_binding(self, binding.var, found)

    def _is_part(self, value: relax.Expr, of: relax.Var) -> bool:
        """Whether a value is a sum which only a larger one of its shape reads."""
        if not isinstance(value, relax.DataflowVar) or self.uses[value] != 1:
            return False
        is_sum = value in self.calls and operator_name(self.calls[value]) == _ADD
        return is_sum and static_shape(value) == static_shape(of)

    def _terms(self, var: relax.Var) -> Iterator[relax.Expr]:
        for term in self.calls[var].args:
            if isinstance(term, relax.Var) and term in self.inner:
                yield from self._terms(term)
            else:
                yield term

    def _joined(self, var: relax.Var) -> relax.Expr | None:
        """Return a sum with fewer convolutions; None if none can be joined."""
        shape = static_shape(var)
        if shape is None or len(shape) != 4 or str(var.ty.dtype) != "float32":
            return None
        bias, others, branches = np.zeros((1, shape[1], 1, 1)), [], []
        for term in self._terms(var):
            branch, constant = self._branch(term, shape), _bias(term, shape)
            if branch is not None:
                branches.append((term, branch))
            elif constant is not None:
                bias = bias + constant
            else:
                others.append(term)
        terms = list(self._fewer(branches))
        if len(terms) == len(branches):
            return None
        terms += [_constant(bias)] if bias.any() else []
        terms += [self.visit_expr(term) for term in others]
        total, *more = (self.builder_.normalize(term) for term in terms)
        if not more:
            return total
        for term in more:
            emitted = (self.builder_.emit(each, var.name) for each in (total, term))
            total = relax.op.add(*emitted)
        return total

    def _fewer(self, branches: Sequence[tuple[relax.Expr, _Branch]]) -> Iterator[relax.Expr]:
        """Yield the terms of a sum of convolutions, of which some are joined."""
        left = sorted(branches, key=lambda each: each[1].cost, reverse=True)
        while left:
            (term, base), *ahead = left
            left, joined = [], base
            for each in ahead:
                same = base.call is not None and each[1].data.same_as(base.data)
                more = joined.and_also(each[1]) if same else None
                if more is None or np.abs(more.weight).max() > self.largest:
                    left.append(each)
                else:
                    joined = more
            yield self.visit_expr(term) if joined is base else self._call(joined)

    def _call(self, branch: _Branch) -> relax.Expr:
        assert branch.call is not None
        data = self.visit_expr(branch.data)
        return relax.Call(branch.call.op, [data, _constant(branch.weight)], branch.call.attrs)

    def _branch(self, value: relax.Expr, shape: tuple[int, ...]) -> _Branch | None:
        if not isinstance(value, relax.Var) or static_shape(value) != shape:
            return None
        call = self.calls.get(value) if self.uses[value] == 1 else None
        if call is not None and operator_name(call) == "relax.nn.conv2d":
            return _convolution(call)
        ones = np.ones((shape[1], 1, 1, 1))
        if call is not None and operator_name(call) == "relax.multiply":
            for data, other in (call.args, reversed(call.args)):
                found = per_channel(other, shape)
                if found is not None and found[0] == 1 and static_shape(data) == shape:
                    weight = ones * found[1].reshape(-1, 1, 1, 1)
                    return _Branch(data=data, weight=weight, groups=shape[1])
        return _Branch(data=value, weight=ones, groups=shape[1], plain=True)


def _convolution(call: relax.Call) -> _Branch | None:
    data, weight = call.args
    layouts = (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
    if not isinstance(weight, GenericConst) or layouts != ("NCHW", "OIHW"):
        return None
    return _Branch(
        data=data,
        weight=weight.value.numpy().astype(np.float64),
        groups=int(call.attrs.groups),
        stride=tuple(int(n) for n in call.attrs.strides),
        padding=tuple(int(n) for n in call.attrs.padding[:2]),
        dilation=tuple(int(n) for n in call.attrs.dilation),
        call=call,
    )


def _bias(value: relax.Expr, shape: tuple[int, ...]) -> Array | None:
    """Return a constant that has one value for each channel."""
    found = per_channel(value, shape)
    return None if found is None or found[0] != 1 else found[1].reshape(1, -1, 1, 1)


def _constant(array: Array) -> relax.Expr:
    return relax.const(np.ascontiguousarray(array.astype(np.float32)), "float32")


def join_branches(*, half: bool) -> tvm.transform.Pass:
    """Return the pass; `half` for a model that will be computed in half precision. A factor behind
    a sum is then one behind a convolution."""

    @tvm.transform.module_pass(opt_level=0, name="JoinBranches")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        for var, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(var, _Join(module, function, half).visit_expr(function))
        return relax.transform.DeadCodeElimination()(module)

    steps = [transform, fold_scales(half=half)]
    return tvm.transform.Sequential(steps, name="JoinBranches")
