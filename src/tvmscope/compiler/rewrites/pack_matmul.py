"""Gives every matmul its right operand in column panels, packed here where it is constant.

matmul(x, W)  with W constant      -> matmul_packed(x, panels of W)
              and few rows of x in each of many batches: all of them are the rows of one product
matmul(x, y)  with y computed      -> matmul_packed(x, pack(y)); the packing fuses with what made y
"""

from __future__ import annotations

from functools import partial
from math import prod

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.graph.rewrite import Compute, Rewriter, rewrite_calls, static_shape
from tvmscope.compiler.kernels import blocked
from tvmscope.compiler.kernels.packing import pack_columns
from tvmscope.compiler.tunable.knobs import Knobs, by, int_of, notes, ranked, without
from tvmscope.core.target import Target

FEW_ROWS = 32
"""A product of fewer rows reads its weights for little work: many of them are joined into one."""


def pack_matmul(target: Target, knobs: Knobs | None = None) -> tvm.transform.Pass:
    """The pass for a CPU target."""
    pack = partial(_pack, target, knobs or Knobs())
    return rewrite_calls("PackMatmul", {"relax.matmul": pack})


def _pack(target: Target, knobs: Knobs, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    a, b = static_shape(left), static_shape(right)
    dtype = str(getattr(call.ty, "dtype", ""))
    if a is None or b is None or len(a) < 2 or len(b) < 2 or dtype != "float32":
        return None
    panel, emit = tiles.panel(target), rewriter.builder_.emit
    if isinstance(right, GenericConst) and len(b) == 2:
        weight = relax.const(pack_columns(right.value.numpy(), panel))
        joins = a[-2] < FEW_ROWS and prod(a[:-2]) > 1
        rows = (prod(a[:-1]), a[-1]) if joins else a
        compute = _product(target, knobs, rows, b, dtype)
        data = emit(relax.op.reshape(left, rows)) if joins else left
        made = rewriter.builder_.call_te(compute, data, weight, primfunc_name_hint="matmul")
        return relax.op.reshape(emit(made), (*a[:-1], b[-1])) if joins else made
    if len(a) != len(b) or a[:-2] != b[:-2]:
        return None  # broadcast batches: left to the fallback
    pack = partial(blocked.pack_panels, panel=panel)
    packed = emit(rewriter.builder_.call_te(pack, right, primfunc_name_hint="pack"))
    compute = _product(target, knobs, a, b, dtype)
    return rewriter.builder_.call_te(compute, left, packed, primfunc_name_hint="batch_matmul")


def _product(
    target: Target, knobs: Knobs, a: tuple[int, ...], b: tuple[int, ...], dtype: str
) -> Compute:
    workload = f"matmul {by(a)} {by(b)} {dtype}"
    asked = without(knobs.of(workload), "kernel", "share")
    params = ranked(asked, "rows", tiles.ranked_rows(a[-2], target))
    return partial(
        blocked.matmul,
        columns=b[-1],
        computed_rows=tiles.padded_rows(a[-2], target, int_of(params, "rows")),
        out_dtype=dtype,
        notes=notes(workload, params),
    )
