"""Tells of each kernel call which of the program's inputs it reads and which outputs it writes.

    a = cast(x); b = reshape(a); c = conv(b, w); y = transpose(c)     a reads input 0, y is output 0

A view is the value that it is a view of. What is read here is the program after the reshapes that
move nothing have become views, as it will run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import tvm
from tvm import relax

from tvmscope.compiler.describe.sources import Call, bindings, kernel_of, operands_of
from tvmscope.core.profile import Edges

_VIEWS = ("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset")
_IN_PLACE = "relax.call_tir_inplace"

Places = dict[relax.Var, frozenset[int]]


def placed(calls: list[Call], module: tvm.IRModule) -> list[Call]:
    """Return the calls with their edges.

    Of a kernel with fewer calls than were traced, some became views: the others have edges if they
    all have the same.
    """
    final: dict[str, list[Edges]] = {}
    for name, found in program_edges(module):
        final.setdefault(name, []).append(found)
    traced: dict[str, int] = {}
    for call in calls:
        traced[call.kernel] = traced.get(call.kernel, 0) + 1
    rows = {name: iter(_each(found, traced.get(name, 0))) for name, found in final.items()}
    return [
        replace(call, edges=next(rows[call.kernel]) if call.kernel in rows else None)
        for call in calls
    ]


def _each(found: list[Edges], count: int) -> list[Edges | None]:
    if len(found) == count:
        return [*found]
    return [found[0] if len(set(found)) == 1 else None] * count


def program_edges(module: tvm.IRModule) -> Iterator[tuple[str, Edges]]:
    """Yield the kernels that the main function calls, in order, each with its edges."""
    function = module["main"]
    rows = bindings(function)
    read, written = _read(function, rows), _written(function, rows)
    nothing = frozenset[int]()
    for binding in rows:
        name = kernel_of(binding.value)
        if name is not None:
            inputs = {i for a in _operands(binding.value) for i in read.get(a, nothing)}
            outputs = written.get(binding.var, nothing)
            yield name, Edges(inputs=tuple(sorted(inputs)), outputs=tuple(sorted(outputs)))


def _read(function: relax.Function, rows: list[relax.Binding]) -> Places:
    """Return the inputs that each value is: itself, or a view."""
    found = {param: frozenset((i,)) for i, param in enumerate(function.params)}
    for binding in rows:
        whole = _viewed(binding.value)
        if whole in found:
            found[binding.var] = found[whole]
    return found


def _written(function: relax.Function, rows: list[relax.Binding]) -> Places:
    """Return the outputs that each value is: itself, by a view of it, or by a write into it."""
    found: Places = {}
    for index, result in enumerate(_results(function, rows)):
        if isinstance(result, relax.Var):
            found[result] = found.get(result, frozenset()) | {index}
    for binding in reversed(rows):
        for value in (_viewed(binding.value), *overwritten(binding.value)):
            if value is not None and binding.var in found:
                found[value] = found.get(value, frozenset()) | found[binding.var]
    return found


def _results(function: relax.Function, rows: list[relax.Binding]) -> list[relax.Expr]:
    """Return the values that the function returns, behind other names for them."""
    values = {binding.var: binding.value for binding in rows}
    last: relax.Expr | None = function.body.body
    while isinstance(last, relax.Var) and isinstance(values.get(last), relax.Var | relax.Tuple):
        last = values.get(last)
    return [] if last is None else _fields(last)


def _viewed(value: relax.Expr) -> relax.Var | None:
    """Return the value of which this one is a view, another name, or a part."""
    if isinstance(value, relax.TupleGetItem):
        value = value.tuple_value
    elif isinstance(value, relax.Call) and getattr(value.op, "name", "") in _VIEWS:
        value = value.args[0]
    return value if isinstance(value, relax.Var) else None


def overwritten(value: relax.Expr) -> Iterator[relax.Var]:
    """Yield the values whose memory a kernel writes its result into."""
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == _IN_PLACE:
        operands = _fields(value.args[1])
        at = [int(i) for i in value.attrs.inplace_indices]
        yield from (a for i in at if i >= 0 and isinstance(a := operands[i], relax.Var))


def _operands(call: relax.Expr) -> Iterator[relax.Var]:
    assert isinstance(call, relax.Call)  # of a kernel, which its caller has seen
    yield from (v for a in operands_of(call) for v in _fields(a) if isinstance(v, relax.Var))


def _fields(value: relax.Expr) -> list[relax.Expr]:
    return list(value.fields) if isinstance(value, relax.Tuple) else [value]
