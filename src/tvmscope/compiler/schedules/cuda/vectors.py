"""How many neighbouring elements of a block one thread can load, compute and store at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm import ir, s_tir, sym, tirx

WIDEST_BITS = 128
_TRUTH_VALUES = 4
_TYPES = ("float16", "bfloat16", "float32", "int32")
"""Types whose vectors TVM's CUDA generator can compute with."""


def widest_vector(block: s_tir.SBlock, most_bits: int = WIDEST_BITS) -> int:
    """Return the length of vectors along a block's last axis; 1 if it has none.

    What is stored, and everything that is read, must lie beside each other along that axis or not
    depend on it, and no condition may.
    """
    from tvm import ir, sym, tirx

    store = block.body
    if not isinstance(store, tirx.BufferStore) or not block.iter_vars:
        return 1
    axis = block.iter_vars[-1]
    if not can_be_vectors(store):
        return 1
    loads = loads_of(store.value)
    calls = list[ir.Call]()
    tvm_ffi.structural_walk(store.value, (ir.Call, calls.append))
    for call in calls:
        if "if_then_else" in str(getattr(call.op, "name", "")) and depends(call.args[0], axis.var):
            return 1
    bits = [int(store.buffer.dtype.bits), *(int(load.ty.dtype.bits) for load in loads)]
    lanes = min(most_bits // max(bits), most_lanes(store.value))
    analyzer = sym.Analyzer()
    bound = {v.var: v.dom for v in block.iter_vars}
    for var, domain in bound.items():
        analyzer.bind(var, domain)
    for buffer, indices, must in (
        (store.buffer, store.indices, True),
        *((load.source, load.indices, False) for load in loads),
    ):
        lanes = _contiguous(buffer, indices, axis, lanes, analyzer, must)
    return lanes


def can_be_vectors(store: tirx.BufferStore) -> bool:
    """Whether everything that is read and stored is of a type that vectors can have."""
    dtypes = {str(store.buffer.dtype), *(str(v.ty.dtype) for v in loads_of(store.value))}
    return dtypes <= set(_TYPES)


def loads_of(value: tirx.Expr) -> list[ir.TensorLoad]:
    """Return everything that an expression reads."""
    from tvm import ir

    loads = list[ir.TensorLoad]()
    tvm_ffi.structural_walk(value, (ir.TensorLoad, loads.append))
    return loads


def most_lanes(value: tirx.Expr) -> int:
    """Return how long vectors of an expression may be: TVM has no more than four truth values."""
    from tvm import tirx

    tests = list[tirx.Expr]()
    kinds = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    tvm_ffi.structural_walk(value, (kinds, tests.append))
    return _TRUTH_VALUES if any(loads_of(test) for test in tests) else WIDEST_BITS


def depends(value: tirx.Expr, var: tirx.Var) -> bool:
    """Whether an expression contains a variable."""
    from tvm.tirx.analysis import undefined_vars

    return any(var.same_as(v) for v in undefined_vars(value))


def _contiguous(
    buffer: tirx.Buffer,
    indices: list[tirx.Expr],
    axis: tirx.IterVar,
    lanes: int,
    analyzer: sym.Analyzer,
    must: bool,
) -> int:
    """Return how many neighbours along the axis lie in one aligned vector of the buffer."""
    from tvm import tirx

    if not any(depends(i, axis.var) for i in indices):
        return 1 if must else lanes
    offset: tirx.Expr = tirx.const(0, str(axis.var.ty.dtype))
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * size + index
    while lanes > 1:
        if int(axis.dom.extent) % lanes == 0 and _is_vector(offset, axis, lanes, analyzer):
            return lanes
        lanes //= 2
    return lanes


def _is_vector(
    offset: tirx.Expr, axis: tirx.IterVar, lanes: int, analyzer: sym.Analyzer
) -> bool:
    """Whether the offset's value is a multiple of the lanes, plus the place in the vector."""
    from tvm import ir, tirx

    dtype = str(axis.var.ty.dtype)
    outer, inner = tirx.Var("vector", dtype), tirx.Var("lane", dtype)
    analyzer.bind(outer, ir.Range(0, axis.dom.extent // lanes))
    analyzer.bind(inner, ir.Range(0, tirx.const(lanes, dtype)))
    at = {axis.var: outer * lanes + inner}
    here: tirx.Expr = tvm_ffi.structural_map(offset, (tirx.Var, lambda v: at.get(v, v)))
    first: tirx.Expr = tvm_ffi.structural_map(
        offset, (tirx.Var, lambda v: outer * lanes if v.same_as(axis.var) else v)
    )
    step = analyzer.simplify(here - first)
    return bool(
        analyzer.can_prove_equal(step, inner) and analyzer.can_prove_equal(first % lanes, 0)
    )
