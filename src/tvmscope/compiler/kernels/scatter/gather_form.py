"""Scatters as tensor expressions: each element of the result looks up its update.

In this form every element is written once: there is no order to keep and no race with any number of
threads. If indices are known only at run time, a small kernel builds the look-up table first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.kernels.loops import COMBINE, extern, flat, phases, product, unflat

Expr = tirx.Expr


def put_rows(
    data: te.Tensor, rows: te.Tensor, updates: te.Tensor, reduction: str, lead: int
) -> te.Tensor:
    """Write rows; `rows` holds, for each leading index, the row of `updates` to take, or -1."""
    combine = COMBINE[reduction]

    def value(*i: Expr) -> Expr:
        row = rows(flat(i[:lead], data.shape[:lead]))
        new = combine(data(*i), updates(row, *i[lead:]))
        return tirx.if_then_else(row >= 0, new, data(*i))

    return te.compute(data.shape, value, name="scatter_rows")


def copy_rows(data: te.Tensor, rows: te.Tensor, updates: te.Tensor) -> te.Tensor:
    """Do the same for CPUs, as copies of whole rows from one or the other."""
    size, inner = int(rows.shape[0]), product(data.shape) // int(rows.shape[0])

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        old, row, new, out = (T.buffer_proxy(b) for b in (*ins, *outs))

        def copy(i: Expr) -> None:
            with T.If(row[i] >= 0):
                with T.Then(), T.serial(0, inner) as j:
                    out[i * inner + j] = new[row[i] * inner + j]
                with T.Else(), T.serial(0, inner) as j:
                    out[i * inner + j] = old[i * inner + j]

        return phases([(size, copy, False)], gpu=False)

    return extern([data.shape], [data, rows, updates], build, [data.dtype], "scatter_rows")[0]


def write_each(data: te.Tensor, places: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    """Copy, then write one element after another: for CPUs, where a table costs more than it saves.

    Measured on two cores, 50,000 updates of 200,000 elements: 2.5 times as fast as by a table.
    """
    combine = COMBINE[reduction]

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        old, place, new, out = (T.buffer_proxy(b) for b in (*ins, *outs))

        def copy(i: Expr) -> None:
            out[i] = old[i]

        def write(row: Expr) -> None:
            with T.If(place[row] >= 0), T.Then():
                out[place[row]] = combine(out[place[row]], new[row])

        loops = [(product(data.shape), copy, False), (int(places.shape[0]), write, True)]
        return phases(loops, gpu=False)

    return extern([data.shape], [data, places, updates], build, [data.dtype], "scatter_each")[0]


def places_nd(indices: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """Return the index of each row of coordinates in the flattened leading axes; -1 for none."""
    depth, leading = int(indices.shape[-1]), indices.shape[:-1]
    count = product(leading)

    def value(row: Expr) -> Expr:
        return _place([indices(*unflat(row, leading), k) for k in range(depth)], shape[:depth])

    return te.compute((count,), value, name="scatter_places")


def places_elements(indices: te.Tensor, shape: Sequence[int], axis: int) -> te.Tensor:
    """Return the same for indices along one axis."""

    def value(row: Expr) -> Expr:
        at = unflat(row, indices.shape)
        return _place([*at[:axis], indices(*at), *at[axis + 1 :]], shape)

    return te.compute((product(indices.shape),), value, name="scatter_places")


def last_rows(places: te.Tensor, size: int, *, gpu: bool) -> te.Tensor:
    """Return for each element the last row that is written to it, or -1."""

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        place, rows = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])

        def clear(i: Expr) -> None:
            rows[i] = tirx.const(-1, "int32")

        def mark(row: Expr) -> None:
            with T.If(place[row] >= 0), T.Then():
                if gpu:  # the largest row wins, in any order
                    T.evaluate(_atomic("atomicMax", outs[0], place[row], row))
                else:
                    rows[place[row]] = tirx.Cast("int32", row)

        return phases([(size, clear, False), (int(places.shape[0]), mark, not gpu)], gpu=gpu)

    return extern([(size,)], [places], build, ["int32"], "scatter_last_rows")[0]


def chained_rows(places: te.Tensor, size: int, *, gpu: bool) -> list[te.Tensor]:
    """Return each element's first row, and each row's next for that element; -1 ends a chain."""
    count = int(places.shape[0])

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        place, heads, nexts = (T.buffer_proxy(b) for b in (ins[0], *outs))

        def clear(i: Expr) -> None:
            heads[i] = tirx.const(-1, "int32")

        def link(i: Expr) -> None:
            row = i if gpu else count - 1 - i  # backwards, so that chains go forwards
            nexts[row] = tirx.const(-1, "int32")
            with T.If(place[row] >= 0), T.Then():
                if gpu:
                    nexts[row] = _atomic("atomicExch", outs[0], place[row], row)
                else:
                    nexts[row] = heads[place[row]]
                    heads[place[row]] = tirx.Cast("int32", row)

        return phases([(size, clear, False), (count, link, not gpu)], gpu=gpu)

    return extern([(size,), (count,)], [places], build, ["int32"] * 2, "scatter_chains")


def fold_rows(
    data: te.Tensor,
    heads: te.Tensor,
    nexts: te.Tensor,
    updates: te.Tensor,
    reduction: str,
    *,
    gpu: bool,
) -> te.Tensor:
    """Combine all rows of each element's chain into `data`."""
    combine, size = COMBINE[reduction], int(heads.shape[0])
    inner = product(data.shape) // size
    run = 1 if gpu else inner  # a thread computes one element on a GPU, a whole row on a CPU

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        old, head, after, new = (T.buffer_proxy(b) for b in ins)
        out = T.buffer_proxy(outs[0])

        def fold(i: Expr) -> None:
            row = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            row[0] = head[i * run // inner]
            with T.serial(0, run) as j:
                out[i * run + j] = old[i * run + j]
            with T.While(row[0] >= 0):
                with T.serial(0, run) as j:
                    at = i * run + j
                    out[at] = combine(out[at], new[row[0] * inner + at % inner])
                row[0] = after[row[0]]

        return phases([(size * inner // run, fold, False)], gpu=gpu)

    inputs = [data, heads, nexts, updates]
    return extern([data.shape], inputs, build, [data.dtype], "scatter_fold")[0]


def _atomic(function: str, buffer: tirx.Buffer, place: Expr, row: Expr) -> Expr:
    address = tirx.address_of(tirx.BufferLoad(buffer, [place]))
    return tirx.call_extern("int32", function, address, tirx.Cast("int32", row))


def _place(at: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Return the flat index of run-time coordinates, or -1 if one is out of range."""
    wrapped = [tirx.Select(c < 0, c + size, c) for c, size in zip(_wide(at), shape, strict=True)]
    outside = [tirx.any(c < 0, c >= size) for c, size in zip(wrapped, shape, strict=True)]
    place = tirx.Cast("int32", flat(wrapped, shape))
    return tirx.Select(tirx.any(*outside), tirx.const(-1, "int32"), place)


def _wide(values: Sequence[Expr]) -> list[Expr]:
    return [tirx.Cast("int64", value) for value in values]
