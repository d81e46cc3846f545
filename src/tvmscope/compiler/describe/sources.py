"""Keeps track of which source operator each binding, and in the end each kernel, came from.

TVM's importers leave no trace of the source in the IR. So every binding of the imported function is
named `src<i>s` after the i-th source operator; names survive most passes, `relabel` names what a
pass added, and `trace_kernels` follows the calls through operator fusion.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvmscope.core.artifact import FALLBACK, Fallback, KernelCall
from tvmscope.core.profile import Edges

_NAME = re.compile(r"src(\d+(?:_\d+)*)s\d*$")
# The last "s" separates the sources from the number that TVM appends to a repeated name.
_MOST_PER_BINDING = 8
"""If more operators than this vanished in a gap, nothing is known about a single binding."""


@dataclass(frozen=True)
class Imported:
    """A Relax module whose bindings are named after `sources`."""

    module: tvm.IRModule
    sources: tuple[tuple[str, ...], ...]
    """The model's own operators that each source represents."""
    warnings: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """The name of the framework's node from which each source was imported."""
    fallbacks: tuple[tuple[Fallback, bytes], ...] = ()
    """Parts that run in a framework, each with its model."""


@mutator
class _Rename(PyExprMutator):
    def __init__(self, module: tvm.IRModule, names: Mapping[relax.Var, relax.Var]) -> None:
        super().__init__(module)
        self.names = names

    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        return self.names.get(var, var)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        return self.names.get(var, var)


def bindings(function: relax.Function) -> list[relax.Binding]:
    """Yield all bindings of a function's body, in order (branches are not entered)."""
    return [b for block in function.body.blocks for b in block.bindings]


def labels(var: relax.Var) -> tuple[int, ...]:
    """Return the sources in a variable's name; empty if it has none."""
    match = _NAME.match(var.name)
    return tuple(int(i) for i in match[1].split("_")) if match else ()


def attach(
    module: tvm.IRModule, owned: Iterable[tuple[relax.Expr, tuple[str, ...]]]
) -> tuple[tvm.IRModule, tuple[tuple[str, ...], ...]]:
    """Name bindings after (result, source operators) pairs, given in the order of import.

    A binding without an owner belongs to the next owned one: importers emit helpers first.
    """
    pairs = list(owned)
    owner: dict[relax.Var, int] = {}
    for index, (result, _) in enumerate(pairs):
        for var in _variables(result):
            owner.setdefault(var, index)
    rows = bindings(module["main"])
    marks: list[tuple[int, ...]] = []
    following: tuple[int, ...] = ()
    for binding in reversed(rows):
        following = (owner[binding.var],) if binding.var in owner else following
        marks.append(following)
    return _apply(module, rows, marks[::-1]), tuple(source for _, source in pairs)


def relabel(module: tvm.IRModule, before: frozenset[int]) -> tvm.IRModule:
    """Name the bindings that a pass added.

    Between two named neighbours they replace the sources that vanished there; where none
    vanished, they prepare the next one.
    """
    rows = bindings(module["main"])
    marks = [labels(b.var) for b in rows]
    if all(marks):
        return module
    present = {i for mark in marks for i in mark}
    gone = sorted(before - present)
    filled = list(marks)
    for index, mark in enumerate(marks):
        if mark:
            continue
        low = next((max(m) for m in reversed(marks[:index]) if m), -1)
        following = next((m for m in marks[index + 1 :] if m), ())
        high = min(following) if following else max(before, default=-1) + 1
        vanished = tuple(i for i in gone if low < i < high)[:_MOST_PER_BINDING]
        filled[index] = vanished or following or ((low,) if low >= 0 else ())
    return _apply(module, rows, filled)


def present(module: tvm.IRModule) -> frozenset[int]:
    """Return the sources that some binding is named after."""
    return frozenset(i for b in bindings(module["main"]) for i in labels(b.var))


def _apply(
    module: tvm.IRModule, rows: list[relax.Binding], marks: list[tuple[int, ...]]
) -> tvm.IRModule:
    names: dict[relax.Var, relax.Var] = {}
    for binding, mark in zip(rows, marks, strict=True):
        name = f"src{'_'.join(map(str, mark))}s"
        if mark and binding.var.name != name:
            kind = relax.DataflowVar if isinstance(binding.var, relax.DataflowVar) else relax.Var
            names[binding.var] = kind(name, binding.var.ty)
    if not names:
        return module
    module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    renamed = _Rename(module, names).visit_expr(module["main"])
    module.update_func(module.get_global_var("main"), renamed)
    return module


def _variables(value: Any) -> Iterable[relax.Var]:
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, list | tuple | relax.Tuple):
        for item in value.fields if isinstance(value, relax.Tuple) else value:
            yield from _variables(item)


# ---- from bindings to kernels ---------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A kernel call in the main function, with the sources it computes."""

    kernel: str
    sources: tuple[int, ...]
    edges: Edges | None = None
    """Known from where the program has its final form."""


def kernel_calls(module: tvm.IRModule) -> list[Call]:
    """Return the kernels that the main function calls, in order, before or after fusion."""
    calls = []
    for binding in bindings(module["main"]):
        callee = kernel_of(binding.value)
        if callee is not None:
            calls.append(Call(callee, labels(binding.var)))
    return calls


def reordered(calls: list[Call], before: tvm.IRModule, after: tvm.IRModule) -> list[Call]:
    """Return the calls in the order of `after`, which has the bindings of `before` in another one.

    Calls that became views follow the kernel that they followed.
    """
    place = {binding.var: at for at, binding in enumerate(bindings(after["main"]))}
    places: dict[str, list[int]] = defaultdict(list)
    for binding in bindings(before["main"]):
        if (name := kernel_of(binding.value)) is not None:
            places[name].append(place[binding.var])
    traced = Counter(call.kernel for call in calls)
    known = {name: iter(found) for name, found in places.items() if len(found) == traced[name]}
    keys, last = [], -1
    for call in calls:
        last = next(known[call.kernel]) if call.kernel in known else last
        keys.append(last)
    return [calls[at] for at in sorted(range(len(calls)), key=lambda at: keys[at])]


def trace_fusion(before: tvm.IRModule, after: tvm.IRModule) -> list[Call]:
    """Return the kernel calls after operator fusion, each with the sources of all that it fused.

    Both functions compute the same data flow; a call is recognised by its callee and by the origin
    of its arguments, so names do not matter.
    """
    waiting: dict[Any, deque[tuple[Any, tuple[int, ...]]]] = defaultdict(deque)
    flow = _Flow(before["main"])
    for index, binding in enumerate(bindings(before["main"])):
        callee = kernel_of(binding.value)
        if callee is None:
            flow.follow(binding)
            continue
        waiting[callee, flow.arguments(binding.value)].append((index, labels(binding.var)))
        flow.tokens[binding.var] = index

    def claim(binding: relax.Binding, flow: _Flow) -> tuple[int, ...]:
        queue = waiting.get((kernel_of(binding.value), flow.arguments(binding.value)))
        token, found = queue.popleft() if queue else (object(), ())
        flow.tokens[binding.var] = token
        return found

    calls, flow = [], _Flow(after["main"])
    for binding in bindings(after["main"]):
        value = binding.value
        fused = _fused_call(after, value)
        if fused is not None:
            call, name, inner = fused
            nested = _Flow(inner, [flow.token(a) for a in call.args])
            found: set[int] = set()
            for step in bindings(inner):
                if kernel_of(step.value) is None:
                    nested.follow(step)
                else:
                    found.update(claim(step, nested))
            flow.tokens[binding.var] = nested.token(inner.body.body)
            calls.append(Call(name, tuple(sorted(found))))
        elif kernel_of(value) is not None:
            calls.append(Call(str(kernel_of(value)), claim(binding, flow)))
        else:
            flow.follow(binding)
    return calls


class _Flow:
    """The origin of each value of a function, as comparable tokens."""

    def __init__(self, function: relax.Function, params: list[Any] | None = None) -> None:
        given = params or [("param", i) for i in range(len(function.params))]
        self.tokens: dict[relax.Var, Any] = dict(zip(function.params, given, strict=True))

    def token(self, value: relax.Expr) -> Any:
        if isinstance(value, relax.Var):
            return self.tokens.get(value)
        if isinstance(value, relax.Tuple):
            return ("tuple", *(self.token(field) for field in value.fields))
        if isinstance(value, relax.TupleGetItem):
            whole = self.token(value.tuple_value)
            if isinstance(whole, tuple) and whole and whole[0] == "tuple":
                return whole[1 + value.index]
            return ("item", whole, value.index)
        return None  # constants and shapes: the callee and the other arguments identify the call

    def arguments(self, call: relax.Expr) -> tuple[Any, ...]:
        assert isinstance(call, relax.Call)  # of a kernel, which its caller has seen
        return tuple(self.token(a) for a in operands_of(call))

    def follow(self, binding: relax.Binding) -> None:
        if isinstance(binding, relax.VarBinding):
            self.tokens[binding.var] = self.token(binding.value)


_CALL_TIR = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed")


def kernel_of(value: relax.Expr) -> str | None:
    """Return the kernel that a binding calls; None if it calls none."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name not in (*_CALL_TIR, "relax.call_pure_packed"):
        return None
    function = value.args[0]
    name = str(getattr(function, "name_hint", None) or getattr(function, "global_symbol", ""))
    # other functions that are called so compute no tensors
    return name if value.op.name in _CALL_TIR or name.startswith(FALLBACK) else None


def operands_of(call: relax.Call) -> list[relax.Expr]:
    """Return what a kernel is given: tensors, or one tuple of them."""
    whole = isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.call_pure_packed"
    return list(call.args[1:] if whole else call.args[1:2])


def _fused_call(
    module: tvm.IRModule, value: relax.Expr
) -> tuple[relax.Call, str, relax.Function] | None:
    """Return a call of a function that fusion made: its name, and the function itself."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
        return None
    function = module[value.op]
    if not isinstance(function, relax.Function):
        return None
    return value, value.op.name_hint, function


def name_calls(calls: list[Call], sources: tuple[tuple[str, ...], ...]) -> tuple[KernelCall, ...]:
    """Return the calls with the names of their source operators."""
    named = []
    for call in calls:
        found = (op for i in call.sources if i < len(sources) for op in sources[i])
        ops = tuple(dict.fromkeys(found))
        named.append(KernelCall(kernel=call.kernel, source_ops=ops, edges=call.edges))
    return tuple(named)
