"""Recurrent layers (RNN, GRU, LSTM): a block of threads for each entry of the batch.

blocks      entries of the batch
  steps       one after the other
    threads     the elements of a vector of gates; all wait before the next vector

State, cell and gates are in shared memory. A thread adds its elements of a product in registers,
and neighbours read neighbouring weights.

All threads run every statement, because TVM refuses barriers inside conditions: those beyond a
vector's end repeat its last element, and what they compute goes to a spare place behind the buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.kernels.marks import RECURRENCE
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules.blocks import moved, new_schedule
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.tirx import Expr, Stmt

_MOST_THREADS = 1024
_WARP = 32
_STATIC_BYTES = 48 << 10
"""More shared memory than this must be asked for at the launch."""
_UNROLLED = 8
"""Weights that a thread asks for before it waits for the first."""

Phase = Callable[["Expr"], "Stmt"]
"""What one thread does, by its number."""


def schedule_steps(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes recurrent layers."""
    made = on_threads(func)
    return None if made is None else new_schedule(made)


def on_threads(func: tirx.PrimFunc, *, in_turn: bool = False) -> tirx.PrimFunc | None:
    """Return a recurrent layer's loops on blocks of threads; None for any other function.

    `in_turn` makes loops over the threads between the barriers instead, which a CPU can run.
    """
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize

    body = func.body
    if not isinstance(body, SBlockRealize) or body.block.name_hint != RECURRENCE:
        return None
    batch = body.block.body
    assert isinstance(batch, tirx.For)
    threads = min(_MOST_THREADS, -(-_longest(batch.body) // _WARP) * _WARP)
    block, thread = (_axis(tag) for tag in ("blockIdx.x", "threadIdx.x"))
    row = moved(batch.body, {batch.loop_var: tirx.Cast("int64", block.var)})
    rows = _Threads(threads, tirx.Cast("int64", thread.var), in_turn)
    loops = rows.all_of(_shared(row))
    if in_turn:
        loops = tirx.For(block.var, 0, int(batch.extent), tirx.ForKind.SERIAL, loops)
    else:
        for axis, extent in ((thread, threads), (block, int(batch.extent))):
            loops = tirx.AttrStmt(axis, "thread_extent", tirx.const(extent, "int32"), loops)
    old = body.block
    inner = SBlock(old.iter_vars, old.reads, old.writes, old.name_hint, loops)
    realized = SBlockRealize(body.iter_values, body.predicate, inner)
    return tirx.PrimFunc(func.params, realized, func.ret_type, func.attrs)


@dataclass(frozen=True)
class _Threads:
    """The threads of a block."""

    count: int
    number: Expr
    in_turn: bool

    def all_of(self, s: Stmt) -> Stmt:
        """Divide the innermost loops over a vector's elements among the threads."""
        from tvm import tirx

        if isinstance(s, tirx.SeqStmt):
            return tirx.SeqStmt([self.all_of(part) for part in s.seq])
        if isinstance(s, tirx.For) and _is_leaf(s.body):
            return self._together(s, lambda at: moved(s.body, {s.loop_var: at}))
        if isinstance(s, tirx.For) and isinstance(elements := s.body, tirx.For):
            assert _is_leaf(elements.body), elements
            return self._together(elements, lambda at: _product(s, elements, at))
        if isinstance(s, tirx.For) and isinstance(s.body, tirx.IfThenElse):
            return self._steps(s, s.body)
        assert isinstance(s, tirx.AllocBuffer), s
        return s

    def _steps(self, loop: tirx.For, ends: tirx.IfThenElse) -> Stmt:
        """The steps of the entry's length, then those after it."""
        from tvm import tirx

        assert isinstance(ends.condition, tirx.LT)
        assert ends.condition.a.same_as(loop.loop_var)
        assert ends.else_case is not None
        most, none = loop.extent, tirx.const(0, "int64")
        length = tirx.max(tirx.min(ends.condition.b, most), none)
        after = tirx.Var("after", "int64")
        rest = moved(ends.else_case, {loop.loop_var: after})
        serial = tirx.ForKind.SERIAL
        return tirx.SeqStmt([
            tirx.For(loop.loop_var, none, length, serial, self.all_of(ends.then_case)),
            tirx.For(after, length, most - length, serial, self.all_of(rest)),
        ])  # fmt: skip

    def _together(self, loop: tirx.For, phase: Phase) -> Stmt:
        """The elements of a loop, one or some of them per thread, then a barrier."""
        from tvm import tirx

        extent = int(loop.extent)
        turn = tirx.Var("turn", "int64")

        def of_thread(number: Expr) -> Stmt:
            at = turn * self.count + number
            some = phase(tirx.min(at, extent - 1) if extent % self.count else at)
            if extent % self.count:
                some = _spared(some, at < extent)
            return tirx.For(turn, 0, -(-extent // self.count), tirx.ForKind.SERIAL, some)

        if self.in_turn:
            number = tirx.Var("number", "int64")
            return tirx.For(number, 0, self.count, tirx.ForKind.SERIAL, of_thread(number))
        barrier = tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared")
        return tirx.SeqStmt([of_thread(self.number), tirx.Evaluate(barrier)])


def _product(terms: tirx.For, elements: tirx.For, at: Expr) -> Stmt:
    """One element of a product, `target[at] += vector[k] * weight[k, at]`, added in a register."""
    from tvm import tirx

    store = elements.body
    assert isinstance(store, tirx.BufferStore)
    dtype = str(store.buffer.dtype)
    own = tirx.decl_buffer((1,), dtype, "own", scope="local")
    outer, inner = tirx.Var("k_outer", "int64"), tirx.Var("k_inner", "int64")
    count = int(terms.extent)
    unrolled = _UNROLLED if count % _UNROLLED == 0 else 1
    k = outer * unrolled + inner
    place = [moved(i, {elements.loop_var: at}) for i in store.indices]
    new = moved(store.value, {elements.loop_var: at, terms.loop_var: k})
    assert isinstance(new, tirx.Add)  # target + vector * weight
    zero = tirx.const(0, "int64")
    held = tirx.BufferLoad(own, [zero])
    add = tirx.BufferStore(own, held + new.b, [zero])
    unroll = tirx.For(inner, 0, unrolled, tirx.ForKind.UNROLLED, add)
    return tirx.SeqStmt([
        tirx.AllocBuffer(own),
        tirx.BufferStore(own, tirx.BufferLoad(store.buffer, place), [zero]),
        tirx.For(outer, 0, count // unrolled, tirx.ForKind.SERIAL, unroll),
        tirx.BufferStore(store.buffer, held, place),
    ])  # fmt: skip


def _spared(s: Stmt, inside: Expr) -> Stmt:
    """The same with stores to shared memory by threads that are not `inside` in the spare place."""
    import tvm_ffi
    from tvm import tirx

    def store(e: tirx.BufferStore) -> Stmt:
        if not e.buffer.scope().startswith("shared"):
            return e  # all of these threads store the value that the element gets anyway
        spare = tirx.const(int(e.buffer.shape[0]) - 1, "int64")
        return tirx.BufferStore(e.buffer, e.value, [tirx.Select(inside, e.indices[0], spare)])

    changed: Stmt = tvm_ffi.structural_map(s, (tirx.BufferStore, store))
    return changed


def _is_leaf(s: Stmt) -> bool:
    from tvm import tirx

    parts = list(s.seq) if isinstance(s, tirx.SeqStmt) else [s]
    return all(isinstance(part, tirx.BufferStore) for part in parts)


def _shared(s: Stmt) -> Stmt:
    """The same with the buffers of an entry in shared memory, each with a spare place."""
    import tvm_ffi
    from tvm import tirx

    found: dict[tirx.Buffer, tirx.Buffer] = {}
    made: list[tirx.AllocBuffer] = []
    tvm_ffi.structural_walk(s, (tirx.AllocBuffer, made.append))
    total = sum(4 * prod(int(d) for d in each.buffer.shape) for each in made)
    scope = "shared" if total <= _STATIC_BYTES else "shared.dyn"
    for number, each in enumerate(made):
        size, dtype = int(each.buffer.shape[0]) + 1, each.buffer.dtype
        found[each.buffer] = tirx.decl_buffer((size,), dtype, f"held_{number}", scope=scope)

    changed: Stmt = tvm_ffi.structural_map(s, (tirx.Buffer, lambda b: found.get(b, b)))
    return changed


def _longest(s: Stmt) -> int:
    """The elements of the longest vector."""
    import tvm_ffi
    from tvm import tirx

    found = [1]

    def note(loop: tirx.For) -> None:
        if _is_leaf(loop.body):
            found.append(int(loop.extent))

    tvm_ffi.structural_walk(s, (tirx.For, note))
    return max(found)


def _axis(tag: str) -> tirx.IterVar:
    from tvm import te

    return te.thread_axis(tag)


RULE = ScheduleRule(
    name="tir-steps",
    devices=("cuda",),
    version=1,
    words=marked(
        "A recurrent layer: its steps run one after the other in a block of threads for each entry "
        "of the batch."
    ),
    schedule=schedule_steps,  # no switch: without it, the layer would have no threads at all
)
