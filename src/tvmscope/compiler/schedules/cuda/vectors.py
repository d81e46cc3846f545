"""How many neighbouring elements of a block one thread can load, compute and store at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm import ir, s_tir, sym, tirx

WIDEST_BITS = 128
_FOUR = 4
_WIDE_BITS = 32
_TYPES = ("float16", "bfloat16", "float32", "int32")
"""Types whose vectors TVM's CUDA generator can compute with."""


def widest_vector(
    block: s_tir.SBlock, axis: tirx.IterVar | None = None, *, gathers: bool = False
) -> int:
    """Return the length of vectors along an axis of a block, by default its last; 1 if none fits.

    What is stored, and everything that is read, must lie beside each other along the axis or not
    depend on it, and a condition must hold for whole vectors. With `gathers`, one operand that lies
    so is enough: others, such as weights in another order, are read element by element.
    """
    import tvm_ffi
    from tvm import ir, sym, tirx

    store = block.body
    if not isinstance(store, tirx.BufferStore) or not block.iter_vars or not can_be_vectors(store):
        return 1
    axis = block.iter_vars[-1] if axis is None else axis
    loads = loads_of(store.value)
    calls = list[ir.Call]()
    tvm_ffi.structural_walk(store.value, (ir.Call, calls.append))
    tests = [c.args[0] for c in calls if "if_then_else" in str(getattr(c.op, "name", ""))]
    analyzer = sym.Analyzer()
    for each in block.iter_vars:
        analyzer.bind(each.var, each.dom)
    bits = max(int(store.buffer.dtype.bits), *(int(v.ty.dtype.bits) for v in loads), 1)
    widest = min(WIDEST_BITS // bits, most_lanes(store.value, axis.var))
    widest = _contiguous(store.buffer, store.indices, axis, widest, analyzer)
    while widest > 1 and not all(_holds(test, axis, widest, analyzer) for test in tests):
        widest //= 2
    moving = [v for v in loads if any(depends(i, axis.var) for i in v.indices)]
    moving = [v for v in moving if not v.source.same_as(store.buffer)]
    found = [_contiguous(v.source, v.indices, axis, widest, analyzer) for v in moving]
    return min([widest, max(found) if gathers and found else min(found, default=widest)])


def _holds(test: tirx.Expr, axis: tirx.IterVar, lanes: int, analyzer: sym.Analyzer) -> bool:
    """Whether a condition has one value in a whole vector."""
    if not depends(test, axis.var):
        return True
    inner, here, _ = _in_vectors(test, axis, lanes, analyzer)
    return not depends(analyzer.simplify(here), inner)


def can_be_vectors(store: tirx.BufferStore) -> bool:
    """Whether everything that is read and stored is of a type that vectors can have."""
    dtypes = {str(store.buffer.dtype), *(str(v.ty.dtype) for v in loads_of(store.value))}
    return dtypes <= set(_TYPES)


def loads_of(value: tirx.Expr) -> list[ir.TensorLoad]:
    """Return everything that an expression reads."""
    import tvm_ffi
    from tvm import ir

    loads = list[ir.TensorLoad]()
    tvm_ffi.structural_walk(value, (ir.TensorLoad, loads.append))
    return loads


def most_lanes(value: tirx.Expr, var: tirx.Var) -> int:
    """Return how long vectors of an expression along a variable may be: TVM has no more than four
    truth values or whole numbers in one, and writes no more than four equal values of 32 bits, as
    of a constant, into one."""
    import tvm_ffi
    from tvm import tirx

    tests, singles, choices = list[tirx.Expr](), list[tirx.Expr](), list[tirx.Select]()
    kinds = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    tvm_ffi.structural_walk(value, (kinds, tests.append))
    tvm_ffi.structural_walk(value, ((tirx.FloatImm, tirx.Cast), singles.append))
    tvm_ffi.structural_walk(value, (tirx.Select, choices.append))
    equal = (e for e in singles if not depends(e, var))
    wide = any(int(e.ty.dtype.bits) >= _WIDE_BITS for e in equal)
    places = any(
        isinstance(e, tirx.Cast) and "int" in str(e.value.ty.dtype) and depends(e, var)
        for e in singles
    )
    few = wide or places or choices or any(loads_of(test) for test in tests)
    return _FOUR if few else WIDEST_BITS


def depends(value: tirx.Expr, var: tirx.Var) -> bool:
    """Whether an expression contains a variable."""
    from tvm.tirx.analysis import undefined_vars

    return any(var.same_as(v) for v in undefined_vars(value))


def _contiguous(
    buffer: tirx.Buffer,
    indices: Sequence[tirx.Expr],
    axis: tirx.IterVar,
    lanes: int,
    analyzer: sym.Analyzer,
) -> int:
    """Return how many neighbours along the axis lie in one aligned vector of the buffer."""
    from tvm import tirx

    offset: tirx.Expr = tirx.const(0, str(axis.var.ty.dtype))
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * size + index
    while lanes > 1:
        if int(axis.dom.extent) % lanes == 0 and _is_vector(offset, axis, lanes, analyzer):
            return lanes
        lanes //= 2
    return 1


def _is_vector(offset: tirx.Expr, axis: tirx.IterVar, lanes: int, analyzer: sym.Analyzer) -> bool:
    """Whether the offset's value is a multiple of the lanes, plus the place in the vector."""
    inner, here, first = _in_vectors(offset, axis, lanes, analyzer)
    step = analyzer.simplify(here - first)
    return bool(
        analyzer.can_prove_equal(step, inner) and analyzer.can_prove_equal(first % lanes, 0)
    )


def _in_vectors(
    value: tirx.Expr, axis: tirx.IterVar, lanes: int, analyzer: sym.Analyzer
) -> tuple[tirx.Var, tirx.Expr, tirx.Expr]:
    """Return the place in a vector, an expression there, and the same at the vector's first."""
    import tvm_ffi
    from tvm import ir, tirx

    dtype = str(axis.var.ty.dtype)
    outer, inner = tirx.Var("vector", dtype), tirx.Var("lane", dtype)
    zero = tirx.const(0, dtype)
    analyzer.bind(outer, ir.Range(zero, tirx.const(int(axis.dom.extent) // lanes, dtype)))
    analyzer.bind(inner, ir.Range(zero, tirx.const(lanes, dtype)))

    def at(place: tirx.Expr) -> tirx.Expr:
        found: tirx.Expr = tvm_ffi.structural_map(
            value, (tirx.Var, lambda v: place if v.same_as(axis.var) else v)
        )
        return found

    return inner, at(outer * lanes + inner), at(outer * lanes)
