"""Gives each kernel that reads a moved or cast value a move of its own, which fuses into it.

    t = cast(x);  a = mean(t),  b = t * 2   ->   a = mean(cast(x)),  b = cast(x) * 2

TVM fuses an operator into its readers only where one kernel has them all. A move that stays alone
is a launch, and its result is written and read again; each reader can read the source instead. That
is done where all readers are fused with what they read, which TVM's own patterns tell. A reduction
takes in what TVM calls elementwise; a move that reads neighbours from neighbours is called so here:

    t = x[:, 1];  y = sum(t, -1)    ->    y = sum(x[:, 1], -1)

A large transposition stays: read as it lies, its source would be read in pieces by every reader.
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx.analysis import undefined_vars

from tvmscope.compiler.graph.rewrite import with_vars
from tvmscope.compiler.units.graph import Graph, variables

_BROADCAST, _INJECTIVE, _REDUCTION = 1, 2, 3
"""Of TVM's OpPatternKind: a reduction takes in what is at most the first, an elementwise operator
what is at most the second."""
_MOST_SCATTERED = 1 << 18
"""A transposition of more elements is a kernel of its own."""


def spread_moves() -> tvm.transform.Pass:
    """Return the pass; functions must have TVM's patterns."""

    @tvm.transform.module_pass(opt_level=0, name="SpreadMoves")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        graph = Graph(module["main"])
        for var, func in _reduced(module, graph).items():
            module.update_func(var, func.with_attr("op_pattern", _BROADCAST))
        copied = _copied(module, graph)
        if not copied:
            return module
        spreader = _Spreader(module, copied)
        function = spreader.visit_expr(module["main"])
        spreader.builder_.update_func(module.get_global_var("main"), function)
        return spreader.builder_.get()

    return transform


def _reduced(module: tvm.IRModule, graph: Graph) -> dict[tvm.ir.GlobalVar, tirx.PrimFunc]:
    """Return the moves of rows that reductions read, perhaps through other moves."""
    found: dict[tvm.ir.GlobalVar, tirx.PrimFunc] = {}
    into: set[relax.Var] = set()
    for binding in reversed(graph.bindings):
        func = _function(module, binding.value)
        pattern = _pattern(func) if func is not None else None
        if func is None or pattern is None:
            continue
        read = any(r in into for r in graph.readers[binding.var])
        rows = _is_move(func, most_scattered=0)
        if pattern == _REDUCTION or (pattern <= _BROADCAST and read) or (rows and read):
            into.add(binding.var)
        if pattern == _INJECTIVE and rows and read:
            found[_callee(binding.value)] = func
    return found


def _copied(module: tvm.IRModule, graph: Graph) -> set[relax.Var]:
    """Return the moves that each reader computes for itself: what these read, they read, too."""
    found: set[relax.Var] = set()
    for binding in reversed(graph.bindings):
        var, readers = binding.var, graph.readers[binding.var]
        func = _function(module, binding.value)
        if func is None or None in readers or not isinstance(var, relax.DataflowVar):
            continue  # outside of a dataflow block nothing is fused
        if not _is_move(func):
            continue
        most = _REDUCTION if (_pattern(func) or 0) <= _BROADCAST else _INJECTIVE
        fused = all(_fuses(module, graph.values[r], most) for r in readers if r is not None)
        several = len(set(readers)) > 1 and not _meet(module, graph, var)
        if fused and (several or any(r in found for r in readers)):
            found.add(var)
    return found


def _meet(module: tvm.IRModule, graph: Graph, var: relax.Var) -> bool:
    """Whether all that is computed of a value ends in one kernel: TVM makes it of them."""
    ahead = {r for r in graph.readers[var] if r is not None}
    while len(ahead) > 1:
        first = min(ahead, key=lambda v: graph.order[v])
        readers = graph.readers[first]
        if None in readers or not _fuses(module, graph.values[first], _INJECTIVE):
            return False
        ahead = ahead - {first} | {r for r in readers if r is not None}
    return all(_fuses(module, graph.values[last], _REDUCTION) for last in ahead)


def _callee(value: relax.Expr) -> tvm.ir.GlobalVar:
    assert isinstance(value, relax.Call)
    var = value.args[0]
    assert isinstance(var, tvm.ir.GlobalVar)
    return var


def _function(module: tvm.IRModule, value: relax.Expr) -> tirx.PrimFunc | None:
    if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
        return None
    func = module[_callee(value)]
    return func if isinstance(func, tirx.PrimFunc) else None


def _pattern(func: tirx.PrimFunc) -> int | None:
    attrs = func.attrs
    return int(attrs["op_pattern"]) if attrs is not None and "op_pattern" in attrs else None


def _fuses(module: tvm.IRModule, value: relax.Expr, most: int) -> bool:
    func = _function(module, value)
    pattern = _pattern(func) if func is not None else None
    return pattern is not None and pattern <= most


def _is_move(func: tirx.PrimFunc, most_scattered: int = _MOST_SCATTERED) -> bool:
    """Whether a function stores elements of its one tensor in another order or type; neighbours
    are read from neighbours, or there are at most `most_scattered`."""
    pattern = _pattern(func)
    if pattern is None or pattern > _INJECTIVE or len(func.params) != 2:
        return False
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(stores) != 1:
        return False
    (store,) = stores
    load = store.value.value if isinstance(store.value, tirx.Cast) else store.value
    if not isinstance(load, ir.TensorLoad):
        return False
    extents = [int(n) if isinstance(n, tirx.IntImm) else None for n in store.buffer.shape]
    known = [n for n in extents if n is not None]
    if len(known) < len(extents):
        return False
    size = prod(known)
    return size <= most_scattered or _is_read_in_rows(load, store)


def _is_read_in_rows(load: ir.TensorLoad, store: tirx.BufferStore) -> bool:
    """Whether neighbours in the last axis are read from the last axis."""
    if not store.indices or not isinstance(store.indices[-1], tirx.Var):
        return True
    last = store.indices[-1]
    return bool(load.indices) and any(last.same_as(v) for v in undefined_vars(load.indices[-1]))


@mutator
class _Spreader(PyExprMutator):
    def __init__(self, module: tvm.IRModule, copied: set[relax.Var]) -> None:
        super().__init__(module)
        self.copied = copied
        self.moves: dict[relax.Var, tuple[relax.Expr, str]] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Leave out a move; compute those that a value reads just before it."""
        if binding.var in self.copied:
            self.moves[binding.var] = (binding.value, binding.var.name)
            return
        if not any(var in self.moves for var in variables(binding.value)):
            super().visit_var_binding_(binding)
            return
        own: dict[relax.Var, relax.Expr] = {}
        value = with_vars(binding.value, lambda var: self._own(var, own))
        super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _own(self, var: relax.Var, own: dict[relax.Var, relax.Expr]) -> relax.Expr:
        """Return a copy for one reader, which may read it twice."""
        if var not in self.moves:
            return var
        if var not in own:
            value, name = self.moves[var]
            value = with_vars(value, lambda inner: self._own(inner, own))
            own[var] = self.builder_.emit(self.visit_expr(value), name)
        return own[var]
