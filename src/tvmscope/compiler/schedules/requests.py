"""Inserts prefetches of the next block of weights into scheduled functions; no value changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import tvm_ffi
from tvm import s_tir, tirx

from tvmscope.compiler.schedules.cpu.prefetch import LINE_BYTES, MARK, Plan

_PLUS = "tirx.handle_add_byte_offset"
_INTO_SECOND_CACHE = 2


def insert(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with prefetches in its marked loops; unchanged if it has no marks."""
    if MARK not in func.script():
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.For, _with_requests))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _with_requests(loop: tirx.For) -> tirx.For:
    if MARK not in loop.annotations:
        return loop
    plan = Plan(**json.loads(str(loop.annotations[MARK])))
    left = {name: value for name, value in loop.annotations.items() if name != MARK}
    body = tirx.SeqStmt([_requests(loop, plan), loop.body])
    var, first, count = loop.loop_var, loop.min, loop.extent
    return tirx.For(var, first, count, loop.kind, body, loop.thread_binding, left)


def _requests(loop: tirx.For, plan: Plan) -> tirx.Stmt:
    """Place the prefetches at the start of each step of the marked loop."""
    realize, inner = _block_below(loop.body)
    inner = [loop.loop_var, *inner] if plan.spread > 1 else inner
    at_start = {v: tirx.const(0, str(v.ty.dtype)) for v in inner}
    values = {
        iterator.var: _replaced(value, at_start)
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    }
    at = list(values.values())
    weights = realize.block.reads[-1]
    here = [_replaced(axis.min, values) for axis in weights.region]
    row_bytes = int(weights.source.shape[-1]) * int(weights.source.dtype.bits) // 8
    each = -(-plan.rows * row_bytes // (LINE_BYTES * plan.repeats))
    line = tirx.Var("line", "int32")
    part = at[plan.repeat] // plan.step % plan.repeats  # a task may begin at any repetition
    few = -(-each // plan.spread)
    first = loop.loop_var * few if plan.spread > 1 else tirx.const(0, "int32")
    offset = (part * each + first + line) * LINE_BYTES
    following = (
        _further(here, weights.source.shape, plan, plan.blocks + n) for n in range(plan.blocks)
    )
    lines = [_request(weights.source[index], offset) for index in following]
    body = lines[0] if len(lines) == 1 else tirx.SeqStmt(lines)
    asked: tirx.Stmt = tirx.For(line, 0, few, tirx.ForKind.SERIAL, body)
    if few * plan.spread > each:  # nothing is left for the last steps
        asked = tirx.IfThenElse(first < each, asked, None)
    return asked if plan.once is None else tirx.IfThenElse(at[plan.once] == 0, asked, None)


def _further(
    here: Sequence[tirx.Expr], shape: Sequence[tirx.Expr], plan: Plan, blocks: int
) -> list[tirx.Expr]:
    """Return the index some blocks ahead, or the last valid one."""
    index, axis = list(here), plan.block_axis
    count = int(shape[axis])
    if not plan.carry:
        index[axis] = tirx.min(index[axis] + blocks, count - 1)
        return index
    following = tirx.min(
        index[axis - 1] * count + index[axis] + blocks, int(shape[axis - 1]) * count - 1
    )
    index[axis - 1], index[axis] = following // count, following % count
    return index


def _request(first: tirx.Expr, offset: tirx.Expr) -> tirx.Stmt:
    address = tirx.call_intrin("handle", _PLUS, tirx.address_of(first), offset)
    hints = (tirx.const(value, "int32") for value in (0, _INTO_SECOND_CACHE, 1))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints))


def _block_below(s: tirx.Stmt) -> tuple[s_tir.SBlockRealize, list[tirx.Var]]:
    """Return the block inside nested loops, and the loops' variables."""
    inner = []
    while not isinstance(s, s_tir.SBlockRealize):
        assert isinstance(s, tirx.For)  # a marked loop contains no other statement
        inner.append(s.loop_var)
        s = s.body
    return s, inner


def _replaced(expression: tirx.Expr, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    replaced: tirx.Expr = tvm_ffi.structural_map(expression, (tirx.Var, lambda v: values.get(v, v)))
    return replaced
