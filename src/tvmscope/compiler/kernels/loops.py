"""Explicit loops, for computations that tensor expressions cannot express, and index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tvm import te, tirx
from tvm.ir import PrimType
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

Expr = tirx.Expr
Combine = Callable[[Expr, Expr], Expr]
Build = Callable[[Sequence[tirx.Buffer], Sequence[tirx.Buffer]], tirx.Stmt]
"""Takes the buffers of inputs and outputs; returns the loops that fill the outputs."""


class Cells(Protocol):
    """A buffer that loops read and write by index, as the IR builder returns it."""

    def __getitem__(self, index: Expr | int) -> Expr: ...
    def __setitem__(self, index: Expr | int, value: Expr | int) -> None: ...


COMBINE: dict[str, Combine] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tirx.min,
    "max": tirx.max,
}
_THREADS = 256
BLOCK = 512
"""Threads that process one row together."""


def phases(phases: Sequence[tuple[int, Callable[[Expr], None], bool]], *, gpu: bool) -> tirx.Stmt:
    """Build loops one after the other, each parallel unless it is marked as serial."""
    loops: list[tirx.Stmt] = []
    for extent, body, serial in phases:
        with IRBuilder() as builder:
            if gpu:
                _launch(extent, body)
            else:
                with (T.serial if serial else T.parallel)(0, extent) as i:
                    body(i)
        loops.append(builder.get())
    return loops[0] if len(loops) == 1 else tirx.SeqStmt(loops)


def blocks(rows: int, body: Callable[[Expr, Expr], None]) -> tirx.Stmt:
    """Build a block of GPU threads for each row; the body gets both indices."""
    with IRBuilder() as builder:
        _bind(rows, BLOCK, body)
    made: tirx.Stmt = builder.get()
    return made


def variable(dtype: str = "int32") -> Cells:
    """Return a number that a loop changes."""
    return T.buffer_proxy(T.alloc_buffer((1,), dtype, scope="local"))


def held(value: Expr, dtype: str | None = None) -> Expr:
    """Return the current value, computed once.

    An expression used twice is duplicated, and again in every expression made from it; TVM's passes
    analyse each copy, above all those of conditions: minutes for a sort of 8400 elements on CUDA.
    """
    kind = dtype or str(value.ty.dtype)
    place = variable(kind)
    place[0] = value if str(value.ty.dtype) == kind else tirx.Cast(kind, value)
    return place[0]


def _launch(extent: int, body: Callable[[Expr], None]) -> None:
    def guarded(block: Expr, thread: Expr) -> None:
        i = block * _THREADS + thread
        with T.If(i < extent), T.Then():
            body(i)

    _bind(-(-extent // _THREADS), _THREADS, guarded)


def _bind(count: int, threads: int, body: Callable[[Expr, Expr], None]) -> None:
    block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
    bound = [
        T.attr(block, "thread_extent", tirx.const(count, "int32")),
        T.attr(thread, "thread_extent", tirx.const(threads, "int32")),
    ]
    with T.frame_scope(bound):
        body(block, thread)


def extern(
    shapes: Sequence[Sequence[Expr | int]],
    inputs: list[te.Tensor],
    build: Build,
    dtypes: Sequence[str | PrimType],
    name: str,
    marks: Mapping[str, str] | None = None,
) -> list[te.Tensor]:
    """Return one tensor for each of `shapes`, written by the loops that `build` makes."""
    outs = [
        tirx.decl_buffer(shape, dtype, f"{name}_{n}", layout=None)
        for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    made = te.extern(shapes, inputs, build, dtype=dtypes, out_buffers=outs, name=name, attrs=marks)
    return [made] if isinstance(made, te.Tensor) else made


def flat(at: Sequence[Expr], shape: Sequence[Expr | int]) -> Expr:
    place: Expr = at[0]
    for axis, size in zip(at[1:], shape[1:], strict=True):
        place = place * size + axis
    return place


def unflat(place: Expr, shape: Sequence[Expr | int]) -> list[Expr]:
    at: list[Expr] = []
    for size in reversed(shape):
        at.insert(0, tirx.floormod(place, size))
        place = tirx.floordiv(place, size)
    return at


def product(shape: Sequence[Expr | int]) -> int:
    total = 1
    for size in shape:
        total *= int(size)
    return total
