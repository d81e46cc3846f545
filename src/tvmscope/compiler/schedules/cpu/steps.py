"""Recurrent layers (RNN, GRU, LSTM): a few entries of the batch go through the steps together.

parallel  tiles of entries
  steps     one after the other, as long as all entries of the tile have one
    product   a register tile of entries x columns of weights, which are read once for all of them
    entries   the elements of a vector, with functions that vectorise
  entries   the rest of their steps, one by one

The product of a state and the weights takes most of the time, and one entry alone would wait for
the weights, which exceed the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.kernels.marks import RECURRENCE
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Part, moved, new_schedule
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx
    from tvm.tirx import Expr, Stmt

_MOST_ROWS = 8
_NEAR_BYTES = 256 * 1024
"""The vectors of a tile: a part of a second-level cache."""
_SUMS = 16
"""Vectors of sums of a register tile; half as many if there are only 16 registers."""


def schedule_steps(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes recurrent layers."""
    from tvm import tirx
    from tvm.s_tir import SBlock, SBlockRealize

    from tvmscope.compiler.kernels import polynomials

    body = func.body
    if not isinstance(body, SBlockRealize) or body.block.name_hint != RECURRENCE:
        return None
    batch = body.block.body
    assert isinstance(batch, tirx.For)
    count = int(batch.extent)
    fitting = max(1, _NEAR_BYTES // _bytes(batch.body))
    most = min(_MOST_ROWS, fitting, max(1, count // target.cores))
    rows = next(n for n in range(most, 0, -1) if count % n == 0)
    tile = tirx.Var("tile", str(batch.loop_var.ty.dtype))
    made = _Tile(rows, batch.loop_var, tile, target).all_of(batch.body)
    loops = polynomials.vectorising(tirx.For(tile, 0, count // rows, tirx.ForKind.PARALLEL, made))
    old = body.block
    inner = SBlock(old.iter_vars, old.reads, old.writes, old.name_hint, loops)
    realized = SBlockRealize(body.iter_values, body.predicate, inner)
    return new_schedule(tirx.PrimFunc(func.params, realized, func.ret_type, func.attrs))


@dataclass(frozen=True)
class _Tile:
    """Some entries of the batch, which have their vectors side by side."""

    rows: int
    row: tirx.Var
    """The loop variable over entries that is replaced."""
    tile: tirx.Var
    target: Target
    wide: dict[tirx.Buffer, tirx.Buffer] = field(default_factory=dict)
    """The tile's buffers by those of an entry."""

    def all_of(self, s: Stmt, one: Expr | None = None) -> Stmt:
        """Return the loops of an entry for all entries of the tile, or for `one`."""
        from tvm import tirx

        if isinstance(s, tirx.SeqStmt):
            return tirx.SeqStmt([self.all_of(part, one) for part in s.seq])
        if isinstance(s, tirx.AllocBuffer):
            return tirx.AllocBuffer(self._wide(s.buffer))
        assert isinstance(s, tirx.For), s
        if isinstance(s.body, tirx.IfThenElse):
            return self._steps(s, s.body)
        if isinstance(s.body, tirx.For):
            return self._product(s, s.body, one)
        return self._each(s, one)

    def _each(self, s: Stmt, one: Expr | None) -> Stmt:
        """Return what one entry does, for each of them."""
        if one is not None:
            return self._of(s, one)
        return _for("r", self.rows, lambda r: self._of(s, r), self._type)

    @property
    def _type(self) -> str:
        return str(self.row.ty.dtype)

    def _of(self, what: Part, r: Expr) -> Part:
        """Return what an entry computes, for the entry `r` of the tile."""
        import tvm_ffi
        from tvm import tirx
        from tvm.ir.expr import TensorLoad

        def at(index: Expr, buffer: tirx.Buffer) -> Expr:
            return index + r * int(buffer.shape[0])

        def load(e: TensorLoad) -> Expr:
            if e.source.scope() != "local":
                return e
            return tirx.BufferLoad(self._wide(e.source), [at(e.indices[0], e.source)])

        def store(e: tirx.BufferStore) -> Stmt:
            if e.buffer.scope() != "local":
                return e
            return tirx.BufferStore(self._wide(e.buffer), e.value, [at(e.indices[0], e.buffer)])

        entry = self.tile * self.rows + r
        maps: list[tuple[type, Callable[..., Any]]] = [
            (tirx.Var, lambda v: entry if v.same_as(self.row) else v),
            (TensorLoad, load),
            (tirx.BufferStore, store),
        ]
        found: Part = tvm_ffi.structural_map(what, maps)
        return found

    def _wide(self, buffer: tirx.Buffer) -> tirx.Buffer:
        """Return the buffer that has an entry's buffer for each of them."""
        from tvm import tirx

        if buffer not in self.wide:
            size = int(buffer.shape[0]) * self.rows
            made = tirx.decl_buffer((size,), buffer.dtype, buffer.name, scope="local")
            self.wide[buffer] = made
        return self.wide[buffer]

    def _steps(self, loop: tirx.For, ends: tirx.IfThenElse) -> Stmt:
        """Return the steps that all entries have together, and the others entry by entry."""
        from tvm import tirx

        assert isinstance(ends.condition, tirx.LT)
        assert ends.else_case is not None
        step, length, rest = loop.loop_var, ends.condition.b, ends.else_case
        own = _with_own_loops(ends.then_case)
        firsts = [tirx.const(n, self._type) for n in range(self.rows)]
        least = [self._of(length, first) for first in firsts]
        common = least[0]
        for other in least[1:]:
            common = tirx.min(common, other)

        def alone(r: Expr) -> Stmt:
            goes_on = step < self._of(length, r)
            return tirx.IfThenElse(goes_on, self.all_of(own, r), self.all_of(rest, r))

        others = _for("r", self.rows, alone, self._type)
        body = tirx.IfThenElse(step < common, self.all_of(ends.then_case), others)
        return tirx.For(step, loop.min, loop.extent, loop.kind, body)

    def _product(self, terms: tirx.For, elements: tirx.For, one: Expr | None) -> Stmt:
        """Return `target[j] += vector[k] * weight[k, j]` with its sums in registers."""
        from tvm import tirx

        store = elements.body
        assert isinstance(store, tirx.BufferStore)
        count, rows = int(elements.extent), self.rows if one is None else 1
        sums = _SUMS if tiles.vector_registers(self.target) >= 32 else _SUMS // 2
        lanes = self.target.vector_bits // 32
        vectors = count // lanes
        fitting = (n for n in range(sums // rows, 0, -1) if vectors and vectors % n == 0)
        width = next(fitting, 1) * lanes
        whole = count // width * width
        parts: list[Stmt] = []
        if whole:
            blocks = count // width
            block = tirx.Var("block", self._type)
            tile = self._register_tile(terms, elements, store, block * width, width, one)
            parts.append(tirx.For(block, 0, blocks, tirx.ForKind.SERIAL, tile))
        if count > whole:
            j, k = (tirx.Var(name, self._type) for name in ("j", "k"))
            last = moved(store, {elements.loop_var: j + whole, terms.loop_var: k})
            inner = tirx.For(j, 0, count - whole, tirx.ForKind.SERIAL, last)
            rest = tirx.For(k, 0, terms.extent, tirx.ForKind.SERIAL, inner)
            parts.append(self._each(rest, one))
        return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]

    def _register_tile(
        self,
        terms: tirx.For,
        elements: tirx.For,
        store: tirx.BufferStore,
        first: Expr,
        width: int,
        one: Expr | None,
    ) -> Stmt:
        from tvm import tirx

        rows = self.rows if one is None else 1
        lanes = self.target.vector_bits // 32
        own = tirx.decl_buffer((rows * width,), "float32", "sums", scope="local")
        value = store.value
        assert isinstance(value, tirx.Add)  # target + vector * weight
        term = value.b

        def over(make: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
            def of_row(n: Expr) -> Stmt:
                r = n if one is None else one

                def of_vector(q: Expr) -> Stmt:
                    def of_lane(v: Expr) -> Stmt:
                        return make(r, n * width + q * lanes + v, first + q * lanes + v)

                    return _for("v", lanes, of_lane, self._type, vector=True)

                return _for("q", width // lanes, of_vector, self._type, unrolled=True)

            return _for("r", rows, of_row, self._type, unrolled=True)

        def begin(r: Expr, at: Expr, j: Expr) -> Stmt:
            target = tirx.BufferLoad(store.buffer, store.indices)
            return tirx.BufferStore(own, self._of(moved(target, {elements.loop_var: j}), r), [at])

        def add(r: Expr, at: Expr, j: Expr) -> Stmt:
            more = self._of(moved(term, {elements.loop_var: j}), r)
            return tirx.BufferStore(own, tirx.BufferLoad(own, [at]) + more, [at])

        def end(r: Expr, at: Expr, j: Expr) -> Stmt:
            (index,) = (moved(i, {elements.loop_var: j}) for i in store.indices)
            place = index + r * int(store.buffer.shape[0])
            return tirx.BufferStore(self._wide(store.buffer), tirx.BufferLoad(own, [at]), [place])

        k = terms.loop_var
        return tirx.SeqStmt([
            tirx.AllocBuffer(own),
            over(begin),
            tirx.For(k, 0, terms.extent, tirx.ForKind.SERIAL, over(add)),
            over(end),
        ])  # fmt: skip


def _bytes(s: Stmt) -> int:
    """Return the size of an entry's vectors."""
    import tvm_ffi
    from tvm import tirx

    found: list[tirx.AllocBuffer] = []
    tvm_ffi.structural_walk(s, (tirx.AllocBuffer, found.append))
    return sum(4 * int(each.buffer.shape[0]) for each in found)


def _for(
    name: str,
    count: int,
    body: Callable[[Expr], Stmt],
    dtype: str,
    *,
    unrolled: bool = False,
    vector: bool = False,
) -> Stmt:
    from tvm import tirx

    if count == 1:
        return body(tirx.const(0, dtype))
    var = tirx.Var(name, dtype)
    kind = tirx.ForKind.UNROLLED if unrolled else tirx.ForKind.SERIAL
    return tirx.For(var, 0, count, tirx.ForKind.VECTORIZED if vector else kind, body(var))


def _with_own_loops(s: Stmt) -> Stmt:
    """Return a copy with loop variables of its own."""
    import tvm_ffi
    from tvm import tirx

    found: list[tirx.For] = []
    tvm_ffi.structural_walk(s, (tirx.For, found.append))
    return moved(s, {f.loop_var: tirx.Var("i", str(f.loop_var.ty.dtype)) for f in found})


RULE = ScheduleRule(
    name="steps",
    devices=("cpu",),
    version=1,
    words=marked(
        "A recurrent layer: a few entries of the batch go through its steps together, and read the "
        "weights once for all of them."
    ),
    schedule=schedule_steps,
    switch=Switch(name="steps-schedule"),
)
