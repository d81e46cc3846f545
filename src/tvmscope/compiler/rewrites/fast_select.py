"""Replaces sorting, TopK and non-maximum suppression by parallel kernels of our own.

topk(x, k), argsort(x)         -> a merge sort that keeps k of each run, or, on a CPU, one pass that
                                  keeps few of a long row; then a gather
all_class_non_max_suppression  -> that sort, a suppression by class, and the list of what stayed
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import (
    Compute,
    Handler,
    Rewriter,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.kernels.selection import nms, sort
from tvmscope.core.target import Target

_MOST = 2**30
"""Indices, and the ends of runs twice as long, are 32-bit numbers."""


def fast_select(target: Target) -> tvm.transform.Pass:
    """Return the pass for `target`."""
    gpu = target.device == "cuda"
    handlers: dict[str, Handler] = {
        "relax.topk": partial(_top_k, gpu=gpu),
        "relax.argsort": partial(_arg_sort, gpu=gpu),
        "relax.vision.all_class_non_max_suppression": partial(_suppress, gpu=gpu),
    }
    return rewrite_calls("FastSelect", handlers)


def _emit(rewriter: Rewriter, compute: Compute, name: str, *args: relax.Expr) -> relax.Expr:
    return rewriter.emit(rewriter.builder_.call_te(compute, *args, primfunc_name_hint=name))


def _first(
    rewriter: Rewriter, data: relax.Expr, axis: int, most: int, *, descending: bool, gpu: bool
) -> relax.Expr | None:
    """Return the indices of the first `most` elements along an axis, as int32."""
    shape, emit = static_shape(data), rewriter.emit
    if not shape or not prod(shape) or prod(shape) > _MOST:
        return None
    last = len(shape) - 1
    turned = [n for n in range(len(shape)) if n != axis] + [axis]
    if axis != last:
        data = emit(relax.op.permute_dims(data, turned))
    lead = [shape[n] for n in turned[:-1]]
    flat = emit(relax.op.reshape(data, (prod(lead), shape[axis])))
    if not gpu and sort.is_few(most, shape[axis]):
        few = partial(sort.first_few, most=most, descending=descending)
        found = _emit(rewriter, few, "first_few", flat)
    else:
        compute = partial(sort.order, most=most, descending=descending, gpu=gpu)
        found = emit(relax.TupleGetItem(_emit(rewriter, compute, "sort_order", flat), 0))
        if most < shape[axis]:
            found = emit(relax.op.strided_slice(found, [1], [0], [most]))
    found = emit(relax.op.reshape(found, (*lead, most)))
    back = [*range(axis), last, *range(axis, last)]
    return found if axis == last else emit(relax.op.permute_dims(found, back))


def _top_k(rewriter: Rewriter, call: relax.Call, *, gpu: bool) -> relax.Expr | None:
    (data,), attrs, emit = call.args, call.attrs, rewriter.emit
    shape = static_shape(data)
    if not shape or str(data.ty.dtype) == "bool":
        return None
    axis = int(attrs.axis) % len(shape)
    most = int(attrs.k) if int(attrs.k) > 0 else shape[axis]
    if most > shape[axis]:
        return None
    places = _first(rewriter, data, axis, most, descending=bool(attrs.largest), gpu=gpu)
    if places is None:
        return None
    wide = emit(relax.op.astype(places, "int64"))
    results: dict[str, Callable[[], relax.Expr]] = {
        "values": lambda: emit(relax.op.gather_elements(data, wide, axis)),
        "indices": lambda: emit(relax.op.astype(places, attrs.dtype)),
    }
    kind = str(attrs.ret_type)
    return results[kind]() if kind in results else relax.Tuple([r() for r in results.values()])


def _arg_sort(rewriter: Rewriter, call: relax.Call, *, gpu: bool) -> relax.Expr | None:
    (data,), attrs = call.args, call.attrs
    shape = static_shape(data)
    if not shape or str(data.ty.dtype) == "bool":
        return None
    axis = int(attrs.axis) % len(shape)
    places = _first(rewriter, data, axis, shape[axis], descending=bool(attrs.descending), gpu=gpu)
    return None if places is None else relax.op.astype(places, attrs.dtype)


def _suppress(rewriter: Rewriter, call: relax.Call, *, gpu: bool) -> relax.Expr | None:
    boxes, scores, *numbers = call.args
    shape, emit = static_shape(scores), rewriter.emit
    constants = [n for n in numbers[:3] if isinstance(n, GenericConst)]
    corners = static_shape(boxes)
    if str(call.attrs.output_format) != "onnx" or len(constants) < 3 or not corners:
        return None
    if not shape or not prod(shape) or prod(corners) > _MOST:
        return None
    most, overlap, score = (n.value.numpy().item() for n in constants)
    batch, classes, count = shape
    limits = nms.Limits(min(int(most), count), overlap, score)
    rows = emit(relax.op.reshape(scores, (batch * classes, count)))
    ranked = _first(rewriter, rows, 1, count, descending=True, gpu=gpu)
    if ranked is None or limits.most < 1:
        return None
    compute = partial(nms.suppress, limits=limits, gpu=gpu)
    stayed = _emit(rewriter, compute, "nms_suppress", boxes, rows, ranked)
    chosen, counts = (emit(relax.TupleGetItem(stayed, n)) for n in (0, 1))
    gather = partial(nms.collect, classes=classes, gpu=gpu)
    listed = _emit(rewriter, gather, "nms_collect", chosen, counts)
    found, total = (emit(relax.TupleGetItem(listed, n)) for n in (0, 1))
    return relax.Tuple([_cut(rewriter, found, total), total])


def _cut(rewriter: Rewriter, found: relax.Expr, total: relax.Expr) -> relax.Expr:
    """Return the first `total` rows, a number that is known at run time only."""

    def ends(total: te.Tensor) -> te.Tensor:
        three = tirx.const(3, "int64")
        return te.compute((2,), lambda i: tirx.if_then_else(i == 0, total[0], three), name="ends")

    end = _emit(rewriter, ends, "nms_ends", total)
    begin, step = (relax.const(np.full(2, n), "int64") for n in (0, 1))
    return rewriter.emit(relax.op.dynamic_strided_slice(found, begin, end, step))
