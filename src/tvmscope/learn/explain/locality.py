"""Reads a scheduled function's loops: how its main statement accesses memory, what it re-reads.

The traffic beyond a cache is estimated by the classic argument: a loop whose body fits the cache
loads the data that it touches once; every loop around it loads them again in each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from tvm import ir, s_tir, tirx

from tvmscope.learn.facts import Access, Memory
from tvmscope.machine.caches import Cache

Span = tuple[int, int]


class _Unknown(Exception):
    """An index that is no sum, product, quotient or remainder of loop variables."""


@dataclass(frozen=True)
class _Operand:
    buffer: tirx.Buffer
    indices: tuple[ir.Expr, ...]
    writes: bool


@dataclass(frozen=True)
class _Statement:
    """A store with the loops around it, the outermost first."""

    loops: tuple[tirx.For, ...]
    bindings: Mapping[ir.Expr, ir.Expr]
    store: tirx.BufferStore
    condition: bool

    @property
    def times(self) -> int:
        return prod(_extent(loop) for loop in self.loops)


def memory_of(func: tirx.PrimFunc, caches: Sequence[Cache]) -> Memory | None:
    """Describe the memory accesses of the statement with the most operations; None if unknown."""
    statements = list(_statements(func.body, (), {}, False))
    if not statements:
        return None
    try:
        main = max(statements, key=lambda s: (s.times * _operations(s.store.value), s.times))
        operands = _operands(main.store)
        inner = [loop for loop in main.loops if _extent(loop) > 1]
        if not inner or not operands:
            return None
        return Memory(
            loop=inner[-1].loop_var.name,
            accesses=tuple(
                Access(
                    buffer=str(o.buffer.name),
                    writes=o.writes,
                    stride_bytes=_stride(o, inner[-1], main),
                )
                for o in operands
            ),
            traffic_bytes={c.name: _traffic(operands, main, c) for c in caches[:2]},
        )
    except _Unknown:
        return None


def conditions(func: tirx.PrimFunc) -> int:
    """Return how many statements are under a condition that splitting left."""
    return sum(s.condition for s in _statements(func.body, (), {}, False))


def _statements(
    s: tirx.Stmt,
    loops: tuple[tirx.For, ...],
    bindings: Mapping[ir.Expr, ir.Expr],
    guarded: bool,
) -> Iterator[_Statement]:
    if isinstance(s, tirx.For):
        yield from _statements(s.body, (*loops, s), bindings, guarded)
    elif isinstance(s, tirx.SeqStmt):
        for part in s.seq:
            yield from _statements(part, loops, bindings, guarded)
    elif isinstance(s, s_tir.SBlockRealize):
        values = zip(s.block.iter_vars, s.iter_values, strict=True)
        inside = dict(bindings)
        inside.update((axis.var, value) for axis, value in values)
        always = isinstance(s.predicate, tirx.IntImm) and bool(int(s.predicate))
        yield from _statements(s.block.body, loops, inside, guarded or not always)
    elif isinstance(s, tirx.BufferStore):
        yield _Statement(loops, bindings, s, guarded)
    elif isinstance(s, tirx.IfThenElse):
        yield from _statements(s.then_case, loops, bindings, True)
    elif hasattr(s, "body"):
        yield from _statements(s.body, loops, bindings, guarded)


_PAIRS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)


def _operations(e: ir.Expr) -> int:
    if isinstance(e, _PAIRS):
        return 1 + _operations(e.a) + _operations(e.b)
    if isinstance(e, tirx.Cast):
        return _operations(e.value)
    if isinstance(e, ir.Call):
        return 1 + sum(_operations(a) for a in e.args)
    return 0


def _operands(store: tirx.BufferStore) -> list[_Operand]:
    found = [_Operand(store.buffer, tuple(store.indices), True)]
    seen = {store.buffer}
    for load in _loads(store.value):
        if load.source not in seen:
            seen.add(load.source)
            found.append(_Operand(load.source, tuple(load.indices), False))
    return found


def _loads(e: ir.Expr) -> Iterator[ir.TensorLoad]:
    if isinstance(e, ir.TensorLoad):
        yield e
    elif isinstance(e, _PAIRS):
        yield from _loads(e.a)
        yield from _loads(e.b)
    elif isinstance(e, tirx.Cast):
        yield from _loads(e.value)
    elif isinstance(e, tirx.Select):
        yield from _loads(e.true_value)
        yield from _loads(e.false_value)
    elif isinstance(e, ir.Call):
        for argument in e.args:
            yield from _loads(argument)


def _extent(loop: tirx.For) -> int:
    if not isinstance(loop.extent, tirx.IntImm):
        raise _Unknown
    return int(loop.extent)


def _stride(operand: _Operand, loop: tirx.For, statement: _Statement) -> int:
    """Return the bytes between two iterations of a loop, with all other loops fixed."""
    still: dict[ir.Expr, Span] = {each.loop_var: (0, 0) for each in statement.loops}
    moved = {**still, loop.loop_var: (1, 1)}
    here, there = (_offset(operand, spans, statement.bindings) for spans in (still, moved))
    return (there - here) * _item_bytes(operand.buffer)


def _offset(
    operand: _Operand, spans: Mapping[ir.Expr, Span], bindings: Mapping[ir.Expr, ir.Expr]
) -> int:
    offset = 0
    for size, index in zip(operand.buffer.shape, operand.indices, strict=True):
        offset = offset * int(size) + _span(index, spans, bindings)[0]
    return offset


def _traffic(operands: Sequence[_Operand], statement: _Statement, cache: Cache) -> float:
    """Return the bytes that come from beyond a cache."""
    loops = statement.loops
    depth = len(loops)
    while depth > 0 and _footprint(operands, statement, depth - 1, cache) <= cache.size_bytes:
        depth -= 1
    around = max(0, depth - 1)  # data of one iteration of the next loop stay for its next one
    turns = prod(_extent(loop) for loop in loops[:around])
    return turns * _footprint(operands, statement, around, cache)


def _footprint(
    operands: Sequence[_Operand], statement: _Statement, depth: int, cache: Cache
) -> float:
    """Return the bytes of all cache lines that the loops from `depth` inwards touch."""
    spans: dict[ir.Expr, Span] = {}
    for place, loop in enumerate(statement.loops):
        spans[loop.loop_var] = (0, _extent(loop) - 1) if place >= depth else (0, 0)
    total = 0.0
    for operand in operands:
        extents = []
        for size, index in zip(operand.buffer.shape, operand.indices, strict=True):
            low, high = _span(index, spans, statement.bindings)
            extents.append(min(high - low + 1, int(size)))
        row = extents[-1] * _item_bytes(operand.buffer)
        lines = ceil(row / cache.line_bytes) if len(extents) else 1
        total += prod(extents[:-1]) * lines * cache.line_bytes
    return total


def _item_bytes(buffer: tirx.Buffer) -> int:
    return max(1, int(buffer.dtype.bits) * int(buffer.dtype.lanes) // 8)


def _span(e: ir.Expr, spans: Mapping[ir.Expr, Span], bindings: Mapping[ir.Expr, ir.Expr]) -> Span:
    """Return the least and the largest value of an index."""
    if isinstance(e, tirx.IntImm):
        return int(e), int(e)
    if isinstance(e, tirx.Var):
        if e in spans:
            return spans[e]
        if e in bindings:
            return _span(bindings[e], spans, bindings)
        raise _Unknown
    if isinstance(e, tirx.Cast):
        return _span(e.value, spans, bindings)
    if not isinstance(e, (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod)):
        raise _Unknown
    (a, b), (c, d) = _span(e.a, spans, bindings), _span(e.b, spans, bindings)
    if isinstance(e, tirx.Add):
        return a + c, b + d
    if isinstance(e, tirx.Sub):
        return a - d, b - c
    if isinstance(e, tirx.Mul):
        products = (a * c, a * d, b * c, b * d)
        return min(products), max(products)
    if c != d or c <= 0:
        raise _Unknown
    if isinstance(e, tirx.FloorDiv):
        return a // c, b // c
    return (a % c, b % c) if a // c == b // c else (0, c - 1)
