"""Computes products of one input with several weights as one product.

    q = x @ wq + bq,  k = x @ wk + bk,  v = x @ wv + bv   ->   y = x @ [wq wk wv] + [bq bk bv]

Each result is then a part of every row of y, which attention reads in place, perhaps behind an
elementwise kernel that turns queries and keys by their positions, or one that norms them: a third
of the launches, and enough tiles for a whole GPU. Keys and values may have fewer heads than
queries. Results with other readers would have to be copied, so they are not joined.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.compiler.graph.rewrite import replace_binding
from tvmscope.compiler.units.graph import Graph, constant, name_of, scalar, shape_of

_MOVES = ("reshape", "permute_dims", "expand_dims", "squeeze", "broadcast_to")
_VALUES = ("astype", "multiply", "divide", "add", "subtract", "negative", "strided_slice", "concat")
"""Operators that one elementwise kernel computes of a part of a row."""
_NORMS = ("nn.layer_norm", "power", "square", "mean", "sum", "rsqrt", "sqrt")
"""Operators of norms, whose kernels read parts of rows in place."""


@dataclass(frozen=True, kw_only=True)
class _Projection:
    """One product, and the sum with its bias if there is one."""

    product: relax.Var
    last: relax.Var
    input: relax.Var
    weight: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any] | None

    @property
    def kind(self) -> tuple[relax.Var, bool]:
        """The properties that all members of a group share."""
        return self.input, self.bias is None

    @property
    def width(self) -> int:
        return int(self.weight.shape[1])


def join_projections() -> tvm.transform.Pass:
    """Return the pass."""

    @tvm.transform.module_pass(opt_level=0, name="JoinProjections")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        groups = _groups(Graph(module["main"]))
        if not groups:
            return module
        joiner = _Joiner(module, groups)
        joined = joiner.visit_expr(module["main"])
        joiner.builder_.update_func(module.get_global_var("main"), joined)
        return relax.transform.DeadCodeElimination()(joiner.builder_.get())

    return transform


def _groups(graph: Graph) -> list[list[_Projection]]:
    found: dict[Any, list[_Projection]] = defaultdict(list)
    for binding in graph.bindings:
        if (projection := _projection(graph, binding)) is not None:
            found[projection.kind].append(projection)
    return [group for group in found.values() if len(group) > 1]


def _projection(graph: Graph, binding: relax.VarBinding) -> _Projection | None:
    call = graph.call(binding.var, "matmul")
    weight = constant(call.args[1]) if call is not None else None
    if call is None or weight is None or weight.ndim != 2 or not shape_of(call):
        return None
    if not isinstance(call.args[0], relax.Var):
        return None
    last, bias = _with_bias(graph, binding.var, weight.shape[1])
    if not _feeds_products(graph, last):
        return None
    return _Projection(product=binding.var, last=last, input=call.args[0], weight=weight, bias=bias)


def _with_bias(
    graph: Graph, product: relax.Var, width: int
) -> tuple[relax.Var, np.ndarray[Any, Any] | None]:
    """Return the sum with a constant per column, if nothing else reads the product."""
    reader = graph.only_reader(product)
    call = graph.call(reader, "add") if reader is not None else None
    if reader is None or call is None:
        return product, None
    bias = next((c for a in call.args if (c := constant(a)) is not None), None)
    if bias is None or bias.size != width or bias.shape[-1:] != (width,):
        return product, None
    return reader, bias.reshape(-1)


def _feeds_products(graph: Graph, value: relax.Var) -> bool:
    """Whether all that is computed of a value are products of two computed values: of the value
    itself, moved, scaled and normed, or of several of its parts, which one kernel computes. With a
    single reader, an elementwise operator could be part of the product's own kernel."""
    ahead, seen, found, parted = [value], {value}, False, False
    while ahead:
        value = ahead.pop()
        readers = set(graph.readers[value])
        parted |= len(readers) > 1
        for reader in readers:
            call = graph.call(reader) if reader is not None else None
            if reader is None or call is None:
                return False
            name = name_of(call)
            if name == "matmul" and all(isinstance(arg, relax.Var) for arg in call.args):
                found = True
            elif name in (*_MOVES, *_NORMS) or _is_scaled(call) or (parted and name in _VALUES):
                if reader not in seen:
                    seen.add(reader)
                    ahead.append(reader)
            else:
                return False
    return found


def _is_scaled(call: relax.Call) -> bool:
    numbers = [scalar(arg) is not None for arg in call.args]
    return name_of(call) == "astype" or (name_of(call) in ("multiply", "divide") and any(numbers))


@mutator
class _Joiner(PyExprMutator):
    def __init__(self, module: tvm.IRModule, groups: list[list[_Projection]]) -> None:
        super().__init__(module)
        self.ends = {p.last: (group, i) for group in groups for i, p in enumerate(group)}
        self.inside = {p.product for group in groups for p in group if p.product != p.last}
        self.made: dict[int, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Compute a whole group of results at its first one."""
        if binding.var in self.inside:
            return
        if binding.var not in self.ends:
            super().visit_var_binding_(binding)
            return
        group, index = self.ends[binding.var]
        if id(group) not in self.made:
            self.made[id(group)] = self._joined(group)
        joined, axis = self.made[id(group)], len(shape_of(binding.var)) - 1
        begin = sum(p.width for p in group[:index])
        part = relax.op.strided_slice(joined, [axis], [begin], [begin + group[index].width])
        replace_binding(self, binding.var, self.builder_.emit(part, binding.var.name))

    def _joined(self, group: list[_Projection]) -> relax.Var:
        """Return all results of a group side by side."""
        first, name = group[0], "_".join(p.last.name for p in group)
        weight = relax.const(np.concatenate([p.weight for p in group], axis=1))
        x = self.visit_expr(first.input)
        product = self.builder_.emit(relax.op.matmul(x, weight), name)
        biases = [p.bias for p in group if p.bias is not None]
        if biases:
            bias = relax.const(np.concatenate(biases))
            product = self.builder_.emit(relax.op.add(product, bias), name)
        return product
