"""Gives every matmul its right operand in column panels, packed here where it is constant.

matmul(x, W)  with W constant      -> matmul_packed(x, panels of W)
              (B, 1, K) times W is one product of B rows, not B products of one
matmul(x, y)  with y computed      -> matmul_packed(x, pack(y)); the packing fuses with what made y
"""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost import tiles
from tvmscope.compiler.graph.rewrite import Rewriter, rewrite_calls, static_shape
from tvmscope.compiler.kernels import blocked
from tvmscope.compiler.kernels.packing import pack_columns
from tvmscope.compiler.tunable.knobs import Knobs, by, int_of, notes, ranked, without
from tvmscope.core.target import Target


def pack_matmul(target: Target, knobs: Knobs | None = None) -> tvm.transform.Pass:
    """Return the pass for a CPU target."""
    pack = partial(_pack, target, knobs or Knobs())
    return rewrite_calls("PackMatmul", {"relax.matmul": pack})


def _pack(target: Target, knobs: Knobs, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    left, right = call.args
    a, b = static_shape(left), static_shape(right)
    dtype = str(getattr(call.ty, "dtype", ""))
    if a is None or b is None or len(a) < 2 or len(b) < 2 or dtype != "float32":
        return None
    constant = isinstance(right, GenericConst) and len(b) == 2
    axis = blocked.batch_of_rows(a) if constant else None
    rows = a[-2] if axis is None else a[axis]
    workload = f"matmul {by(a)} {by(b)} {dtype}"
    asked = without(knobs.of(workload), "kernel", "share")
    params = ranked(asked, "rows", tiles.ranked_rows(rows, target))
    panel, columns = tiles.panel(target), b[-1]
    compute = partial(
        blocked.matmul,
        columns=columns,
        computed_rows=tiles.padded_rows(rows, target, int_of(params, "rows")),
        out_dtype=dtype,
        notes=notes(workload, params),
    )
    if isinstance(right, GenericConst) and constant:
        weight = relax.const(pack_columns(right.value.numpy(), panel))
        return rewriter.builder_.call_te(compute, left, weight, primfunc_name_hint="matmul")
    if len(a) != len(b) or a[:-2] != b[:-2]:
        return None  # broadcast batches: left to the fallback
    pack = partial(blocked.pack_panels, panel=panel)
    packed = rewriter.emit(rewriter.builder_.call_te(pack, right, primfunc_name_hint="pack"))
    return rewriter.builder_.call_te(compute, left, packed, primfunc_name_hint="batch_matmul")
