"""Fetches the next block of weights while the present one is used.

A model's weights come from main memory, and a core that waits for a block computes nothing. While
a kernel passes over its image with one block, it asks for the next, a part in each row. A rule
marks the loop, and the finished function gets the requests; they change no value.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvmscope.compiler.schedules.cpu.blocks import Block, weight_bytes

_MARK = "tvmscope.prefetch"
_PLUS = "tirx.handle_add_byte_offset"
_LINE_BYTES = 64
_INTO_SECOND_CACHE = 2
_FAR_BYTES = 256 * 1024
"""Weights up to this size are still in a cache from the run before."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What each step of the marked loop asks for: a part of what it reads, one block further on."""

    block_axis: int
    """The axis of the weights along which the next block lies."""
    carry: bool = False
    """Whether behind that axis' end comes the first block of the next step of the axis before."""
    rows: int
    """Rows of the weights' last axis that a step reads, one behind the other."""
    repeat: int
    """The block's iterator that repeats this with the same weights,"""
    step: int
    """by how much it grows each time, and"""
    repeats: int
    """how often: each time asks for another part."""
    once: int | None = None
    """Another iterator that repeats it, which asks at its beginning only."""


def far(sch: s_tir.Schedule, main: Block) -> bool:
    """Whether a block's weights are too large to stay in a cache."""
    return weight_bytes(sch, main) > _FAR_BYTES


def mark(sch: s_tir.Schedule, loop: Any, plan: Plan) -> None:
    """Remember that weights are to be fetched in each step of `loop`."""
    sch.annotate(loop, _MARK, json.dumps(asdict(plan)))


def insert(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with requests in its marked loops; one without marks as it is."""
    if _MARK not in func.script():
        return func
    body = tvm_ffi.structural_map(func.body, (tirx.For, _with_requests))
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _with_requests(loop: tirx.For) -> tirx.For:
    if _MARK not in loop.annotations:
        return loop
    plan = Plan(**json.loads(str(loop.annotations[_MARK])))
    left = {name: value for name, value in loop.annotations.items() if name != _MARK}
    body = tirx.SeqStmt([_requests(loop, plan), loop.body])
    var, first, count = loop.loop_var, loop.min, loop.extent
    return tirx.For(var, first, count, loop.kind, body, loop.thread_binding, left)


def _requests(loop: tirx.For, plan: Plan) -> tirx.Stmt:
    """They stand before the sums: between them they would force each sum into memory."""
    realize, inner = _block_below(loop.body)
    at_start = {v: tirx.const(0, str(v.ty.dtype)) for v in inner}
    values = {
        iterator.var: _replaced(value, at_start)
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    }
    at = list(values.values())
    weights = realize.block.reads[-1]
    index = [_replaced(axis.min, values) for axis in weights.region]
    _move_on(index, weights.source.shape, plan)
    row_bytes = int(weights.source.shape[-1]) * int(weights.source.dtype.bits) // 8
    each = -(-plan.rows * row_bytes // (_LINE_BYTES * plan.repeats))
    line = tirx.Var("line", "int32")
    part = at[plan.repeat] // plan.step % plan.repeats  # a task may begin anywhere
    offset = (part * each + line) * _LINE_BYTES
    asked = tirx.For(line, 0, each, tirx.ForKind.SERIAL, _request(weights.source[index], offset))
    return asked if plan.once is None else tirx.IfThenElse(at[plan.once] == 0, asked, None)


def _move_on(index: list[Any], shape: Any, plan: Plan) -> None:
    """From a block to the next one, as far as there are any."""
    axis = plan.block_axis
    count = int(shape[axis])
    if not plan.carry:
        index[axis] = tirx.min(index[axis] + 1, count - 1)
        return
    following = tirx.min(
        index[axis - 1] * count + index[axis] + 1, int(shape[axis - 1]) * count - 1
    )
    index[axis - 1], index[axis] = following // count, following % count


def _request(first: Any, offset: Any) -> tirx.Stmt:
    address = tirx.call_intrin("handle", _PLUS, tirx.address_of(first), offset)
    hints = (tirx.const(value, "int32") for value in (0, _INTO_SECOND_CACHE, 1))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints))


def _block_below(s: Any) -> tuple[Any, list[Any]]:
    """The block inside nested loops, and the loops' variables."""
    inner = []
    while not isinstance(s, s_tir.SBlockRealize):
        inner.append(s.loop_var)
        s = s.body
    return s, inner


def _replaced(expression: Any, values: dict[Any, Any]) -> Any:
    return tvm_ffi.structural_map(expression, (tirx.Var, lambda v: values.get(v, v)))
