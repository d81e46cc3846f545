"""Stores bfloat16 constants one by one where a schedule would store a vector of them.

TVM 0.27 computes bfloat16 in float32 and stores it as uint16 on CPUs without bfloat16 units. It
converts every stored value except a vector that is one constant, and then refuses the function.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx


def without_vector_constants(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make the loops serial that store a bfloat16 constant; LLVM vectorises them again."""
    buffers = [p for p in func.params if isinstance(p.ty, tirx.BufferType)]
    if not any(str(b.dtype) == "bfloat16" for b in buffers):
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.For, _serial))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _serial(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.VECTORIZED or not _stores_constant(loop.body):
        return loop
    var, first, count = loop.loop_var, loop.min, loop.extent
    return tirx.For(var, first, count, tirx.ForKind.SERIAL, loop.body)


def _stores_constant(body: tirx.Stmt) -> bool:
    if isinstance(body, s_tir.SBlockRealize):
        body = body.block.body
    return (
        isinstance(body, tirx.BufferStore)
        and isinstance(body.value, tirx.FloatImm)
        and str(body.buffer.dtype) == "bfloat16"
    )
