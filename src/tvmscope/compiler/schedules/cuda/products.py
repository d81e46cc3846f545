"""Sums of products in one normal form: convolutions and matrix products as C[b, m, n] += A * B.

A function is one block of products and one block behind it; what is before, between and behind is
inlined into the two. `Product` is that, and `normal_form` writes it anew:

left    A[b, m, k]     zero outside, so that tiles need no conditions
right   B[b, n, k]     or [b, k, n], as its elements lie in memory
sum     C[b, m, n]     in float32
result                 everything behind the sum, in its own order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

from tvmscope.compiler.schedules.blocks import Block, all_blocks, new_schedule

if TYPE_CHECKING:
    from tvm import ir, s_tir, tirx

_WIDEST_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Operand:
    """One factor of the product, as an expression in the variables of its block."""

    value: tirx.Expr
    along_sum: bool
    """Whether its neighbours in memory are neighbours along the sum, not along rows or columns."""
    lanes: int
    """Neighbours that can be loaded at once from an address that is aligned for it."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A sum of products, and what becomes of each sum."""

    func: tirx.PrimFunc
    dtype: str
    index: str
    """The type of its loops' variables."""
    batch: tuple[tirx.IterVar, ...]
    rows: tuple[tirx.IterVar, ...]
    columns: tuple[tirx.IterVar, ...]
    terms: tuple[tirx.IterVar, ...]
    left: Operand
    right: Operand
    sums: tirx.Buffer
    indices: tuple[tirx.Expr, ...]
    """Where a sum is stored, in the variables of the products' block."""
    result: s_tir.SBlock
    """What is computed of the sums."""
    sum_read: tuple[tirx.Expr, ...]
    """Where it reads a sum, in its own variables."""

    @property
    def result_store(self) -> tirx.BufferStore:
        """Return the statement that stores a result; there is no other in the block."""
        from tvm import tirx

        assert isinstance(self.result.body, tirx.BufferStore)  # or this is no product
        return self.result.body

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Return batch, rows, columns and terms."""
        b, m, n, k = (
            prod(int(v.dom.extent) for v in kind)
            for kind in (self.batch, self.rows, self.columns, self.terms)
        )
        return b, m, n, k


def find_product(func: tirx.PrimFunc) -> Product | None:
    """Return the function as a product; None if it is anything else."""
    from tvm.s_tir import ScheduleError

    sch = new_schedule(func)
    main = _only_reduction(sch)
    if main is None:
        return None
    blocks = all_blocks(sch)
    last = [b for b in blocks if not sch.get_consumers(b)]
    if len(last) != 1:
        return None  # several results
    if sch.get(last[0]).name_hint == sch.get(main).name_hint:
        sch.cache_write(main, 0, "global")
        (end,) = sch.get_consumers(main)
    else:
        (end,) = last
    kept = {sch.get(main).name_hint, sch.get(end).name_hint}
    try:
        for block in blocks:
            if sch.get(block).name_hint not in kept:
                sch.compute_inline(block)
    except ScheduleError:
        return None  # a block with its own loops
    return _product(func, sch.get(main), sch.get(end))


def _only_reduction(sch: s_tir.Schedule) -> Block | None:
    """Return the only block with sums, if all other blocks compute element by element."""
    from tvm.tirx import IntImm, IterVar

    found = []
    for block in all_blocks(sch):
        node = sch.get(block)
        kinds = {v.iter_type for v in node.iter_vars}
        static = all(isinstance(v.dom.extent, IntImm) for v in node.iter_vars)
        if not static or not kinds <= {IterVar.DataPar, IterVar.CommReduce}:
            return None
        if IterVar.CommReduce in kinds or node.init is not None:
            found.append(block)
    return found[0] if len(found) == 1 else None


def _product(func: tirx.PrimFunc, main: s_tir.SBlock, result: s_tir.SBlock) -> Product | None:
    from tvm import tirx

    factors = _factors(main)
    if factors is None or not isinstance(result.body, tirx.BufferStore):
        return None
    dtypes = {str(f.ty.dtype) for f in factors}
    indices = {str(v.var.ty.dtype) for v in (*main.iter_vars, *result.iter_vars)}
    if len(dtypes) != 1 or len(indices) != 1:
        return None
    kinds = _kinds(main, factors)
    if kinds is None:
        return None
    batch, rows, columns, terms = kinds
    if not any(v.var in _variables(factors[0]) for v in (*rows, *terms)):
        return None
    read = _sum_read(main, result)
    if read is None:
        return None
    made = [
        _operand(factor, kind, terms) for factor, kind in zip(factors, (rows, columns), strict=True)
    ]
    return Product(
        func=func,
        dtype=dtypes.pop(),
        index=indices.pop(),
        batch=batch,
        rows=rows,
        columns=columns,
        terms=terms,
        left=made[0],
        right=made[1],
        sums=main.writes[0].source,
        indices=tuple(_places(main)),
        result=result,
        sum_read=read,
    )


def _sum_read(main: s_tir.SBlock, result: s_tir.SBlock) -> tuple[tirx.Expr, ...] | None:
    """Return where the result reads sums, if each of its places has a sum of its own."""
    import tvm_ffi
    from tvm import ir

    loads = list[ir.TensorLoad]()
    sums = main.writes[0].source
    tvm_ffi.structural_walk(result.body, (ir.TensorLoad, loads.append))
    reads = [tuple(load.indices) for load in loads if load.source.same_as(sums)]
    axes = {v.var for v in result.iter_vars if int(v.dom.extent) > 1}
    own = {v.var for v in main.iter_vars}
    if not reads or any(i not in own for i in _places(main)):
        return None
    for read in reads:
        used = [i for i in read if i in axes]
        same = all(a.same_as(b) for a, b in zip(read, reads[0], strict=True))
        plain = all(i in axes or int(size) == 1 for i, size in zip(read, sums.shape, strict=True))
        if not same or not plain or len(used) != len(axes):
            return None
    return reads[0]


def _places(main: s_tir.SBlock) -> Sequence[tirx.Expr]:
    from tvm import tirx

    return main.body.indices if isinstance(main.body, tirx.BufferStore) else ()


def _factors(main: s_tir.SBlock) -> tuple[tirx.Expr, tirx.Expr] | None:
    """Return a and b of C += a * b, without the conversions to the type of the sum."""
    from tvm import ir, tirx

    store = main.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    parts = [store.value.a, store.value.b]
    own = [p for p in parts if isinstance(p, ir.TensorLoad) and p.source.same_as(store.buffer)]
    products = [p for p in parts if isinstance(p, tirx.Mul)]
    if len(own) != 1 or len(products) != 1:
        return None
    a, b = (
        f.value if isinstance(f, tirx.Cast) and str(f.ty.dtype) == "float32" else f
        for f in (products[0].a, products[0].b)
    )
    return a, b


Kind = tuple["tirx.IterVar", ...]


def _kinds(
    main: s_tir.SBlock, factors: tuple[tirx.Expr, tirx.Expr]
) -> tuple[Kind, Kind, Kind, Kind] | None:
    """Sort the block's variables: those of both factors, of one, and those that are summed."""
    from tvm.tirx import IterVar

    left, right = (_variables(f) for f in factors)
    batch, rows, columns, terms = [], [], [], []
    for each in main.iter_vars:
        here, there = each.var in left, each.var in right
        if each.iter_type == IterVar.CommReduce:
            terms.append(each)
        elif int(each.dom.extent) == 1 or (here and not there):
            rows.append(each)
        elif there and not here:
            columns.append(each)
        elif here and there:
            batch.append(each)
        else:
            return None
    return tuple(batch), tuple(rows), tuple(columns), tuple(terms)


def _variables(value: tirx.Expr) -> set[tirx.Var]:
    from tvm.tirx.analysis import undefined_vars

    return set(undefined_vars(value))


def _operand(value: tirx.Expr, outer: Kind, terms: Kind) -> Operand:
    """Find out along which axis an operand's neighbours lie, and how many can be loaded at once."""
    import tvm_ffi
    from tvm import ir

    loads = list[ir.TensorLoad]()
    tvm_ffi.structural_walk(value, (ir.TensorLoad, loads.append))
    along = {True: _WIDEST_BYTES, False: _WIDEST_BYTES}
    for load in loads:
        for sum_axis, axes in ((True, terms), (False, outer)):
            along[sum_axis] = min(along[sum_axis], _neighbours(load, axes))
    best = along[True] >= along[False]
    return Operand(value=value, along_sum=best, lanes=along[best] if loads else 1)


def _neighbours(load: ir.TensorLoad, axes: Kind) -> int:
    """Return how many neighbours in memory the last of the axes steps through, in whole vectors."""
    from tvm import sym

    shape = [int(d) for d in load.source.shape]
    inner = next((v for v in reversed(axes) if int(v.dom.extent) > 1), None)
    if inner is None or not shape:
        return 1
    analyzer = sym.Analyzer()
    widest = _WIDEST_BYTES * 8 // int(load.ty.dtype.bits)
    found = sym.detect_linear_equation(load.indices[-1], [inner.var])
    if not found or any(inner.var in _variables(i) for i in load.indices[:-1]):
        return 1
    step, rest = found
    if not analyzer.can_prove_equal(step, 1):
        return 1
    lanes = gcd(widest, gcd(shape[-1], int(inner.dom.extent)))
    while lanes > 1 and not analyzer.can_prove(rest % lanes == 0):
        lanes //= 2
    return lanes
