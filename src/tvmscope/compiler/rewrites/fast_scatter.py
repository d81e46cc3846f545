"""Inverts scatters: each element of the result looks up its update.

    scatter_nd(x, constant box, u)      -> one elementwise kernel that chooses between x and u
    scatter_nd(x, constant indices, u)  -> the same through a constant table: element -> update
    scatter_nd(x, indices, u)           -> a kernel that makes the table, then the same
    reductions with duplicates          -> chains of updates in place of the table
    scatter_elements, index_put and slice_scatter likewise

TVM processes the indices of scatter_nd one by one: on a GPU with one thread if they name single
elements, as exporters write the assignment to a slice. These kernels fuse with the operators around
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler.graph import known
from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    coordinates,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.kernels.loops import COMBINE
from tvmscope.compiler.kernels.scatter import boxes as boxed
from tvmscope.compiler.kernels.scatter import gather_form as ops
from tvmscope.compiler.kernels.scatter import known_indices
from tvmscope.compiler.kernels.scatter.known_indices import Box
from tvmscope.core.target import Target

INJECTIVE = 2
"""TVM's OpPatternKind of mutually fusable operators; it takes a choice for a plain copy (0)."""
_ELEMENTWISE = (boxed.put_box, ops.put_rows)
_NAMES = {
    boxed.put_box: "scatter_box",
    ops.put_rows: "scatter_rows",
    ops.copy_rows: "scatter_rows",
    boxed.copy_boxes: "scatter_copy",
    ops.write_each: "scatter_each",
    ops.fold_rows: "scatter_fold",
    ops.last_rows: "scatter_table",
    ops.chained_rows: "scatter_table",
    ops.places_nd: "scatter_places",
    ops.places_elements: "scatter_places",
}
"""Their names differ from TVM's own: the diagnosis knows that these need no fix."""
_MOST_ROWS = 2**31 - 1
"""Tables contain 32-bit numbers."""


@dataclass
class _Device:
    """The device of the kernels, and the copies made so far: later ones may join them."""

    gpu: bool
    copies: dict[relax.Expr, tuple[relax.Expr, tuple[Box, ...], tuple[relax.Expr, ...]]] = field(
        default_factory=dict
    )


class _Scatter:
    """One scatter with static shapes: `count` updates to indices of the leading axes of `data`."""

    def __init__(
        self,
        rewriter: Rewriter,
        data: relax.Expr,
        updates: relax.Expr,
        lead: int,
        count: int,
        device: _Device,
    ) -> None:
        self.rewriter, self.builder = rewriter, rewriter.builder_
        self.data, self.updates = data, updates
        self.gpu, self.copies = device.gpu, device.copies
        shape = static_shape(data) or ()
        self.shape, self.lead, self.inner = shape, shape[:lead], shape[lead:]
        self.count = count

    def known(self, rows: known_indices.Array, reduction: str) -> relax.Expr | None:
        """Scatter with constant coordinates; None if one is out of range."""
        found = known_indices.wrapped(rows, self.lead)
        if found is None:
            return None
        box = known_indices.box_of(found)
        if box is not None:
            return self.box(box, reduction)
        places = known_indices.flat(found, self.lead)
        if reduction != "update" and known_indices.has_duplicates(places):
            if not self.gpu and prod(self.inner) == 1:
                return self.unknown(relax.const(places.astype(np.int32)), reduction)
            tables = known_indices.chains(places, prod(self.lead))
            return self._fold([relax.const(t) for t in tables], reduction)
        table = known_indices.winners(places, prod(self.lead))
        return self._rows(relax.const(table), reduction)

    def box(self, box: Box, reduction: str) -> relax.Expr:
        updates = self._shaped(box.counts)
        if reduction == "update" and box.covers(self.lead):
            return updates
        if reduction == "update" and not self.gpu:
            before = self.copies.get(known.origin(self.rewriter, self.data), (self.data, (), ()))
            data, boxes, sources = before[0], (*before[1], box), (*before[2], updates)
            rows = known_indices.copied_rows(boxes, self.shape)
            if rows is not None:
                compute = partial(boxed.copy_boxes, boxes=boxes, rows=rows)
                told = {boxed.BOXES: boxed.boxes_text(boxes, rows)}
                result = self.emit(compute, data, *sources, attrs=told)
                self.copies[result] = data, boxes, sources
                return result
        return self.emit(partial(boxed.put_box, box=box, reduction=reduction), self.data, updates)

    def unknown(self, places: relax.Expr, reduction: str) -> relax.Expr:
        """Scatter with indices computed at run time; -1 means that an update is ignored."""
        if not self.gpu and prod(self.inner) == 1:
            compute = partial(ops.write_each, reduction=reduction)
            return self.emit(compute, self.data, places, self._shaped((self.count,)))
        size = prod(self.lead)
        if reduction == "update":
            table = self.emit(partial(ops.last_rows, size=size, gpu=self.gpu), places)
            return self._rows(table, reduction)
        chains = self.emit(partial(ops.chained_rows, size=size, gpu=self.gpu), places)
        return self._fold([relax.TupleGetItem(chains, n) for n in (0, 1)], reduction)

    def _rows(self, table: relax.Expr, reduction: str) -> relax.Expr:
        compute = partial(ops.put_rows, reduction=reduction, lead=len(self.lead))
        if reduction == "update" and not self.gpu:
            compute = partial(ops.copy_rows)
        return self.emit(compute, self.data, table, self._shaped((self.count,)))

    def _fold(self, tables: list[relax.Expr], reduction: str) -> relax.Expr:
        compute = partial(ops.fold_rows, reduction=reduction, gpu=self.gpu)
        tables = [self.builder.emit(t) for t in tables]
        return self.emit(compute, self.data, *tables, self._shaped((self.count,)))

    def _shaped(self, leading: tuple[int, ...]) -> relax.Expr:
        wanted = (*leading, *self.inner)
        if static_shape(self.updates) == wanted:
            return self.updates
        return self.builder.emit(relax.op.reshape(self.updates, wanted))

    def emit(
        self, compute: partial[Any], *args: relax.Expr, attrs: Mapping[str, str | int] | None = None
    ) -> relax.Expr:
        """Bind a kernel's result; the kernel is named after the function that computes it."""
        name = _NAMES[compute.func]
        attrs = {"op_pattern": INJECTIVE} if compute.func in _ELEMENTWISE else attrs
        return self.builder.emit(
            self.builder.call_te(compute, *args, primfunc_name_hint=name, primfunc_attrs=attrs)
        )


def _accepts(reduction: str, *tensors: relax.Expr) -> bool:
    """Whether shapes are static, nothing is too large, and the reduction is supported."""
    shapes = [static_shape(t) for t in tensors]
    if any(shape is None or prod(shape) > _MOST_ROWS for shape in shapes):
        return False
    return reduction in COMBINE and all(str(t.ty.dtype) != "bool" for t in tensors[1:2])


def _scatter_nd(rewriter: Rewriter, call: relax.Call, *, device: _Device) -> relax.Expr | None:
    data, indices, updates = call.args
    reduction = str(call.attrs.reduction)
    if not _accepts(reduction, data, indices, updates):
        return None
    shape, of_indices = static_shape(data) or (), static_shape(indices) or ()
    depth, count = of_indices[-1], prod(of_indices[:-1])
    if not depth or not count or not prod(shape):
        return None
    scatter = _Scatter(rewriter, data, updates, depth, count, device)
    rows = known.value(rewriter, indices)
    if rows is not None:
        return scatter.known(rows.reshape(-1, depth), reduction)
    places = scatter.emit(partial(ops.places_nd, shape=shape), indices)
    return scatter.unknown(places, reduction)


def _scatter_elements(
    rewriter: Rewriter, call: relax.Call, *, device: _Device
) -> relax.Expr | None:
    data, indices, updates = call.args
    reduction, axis = str(call.attrs.reduction), int(call.attrs.axis)
    if not _accepts(reduction, data, indices, updates):
        return None
    shape, of_indices = static_shape(data) or (), static_shape(indices) or ()
    axis %= len(shape)
    fits = all(i <= d for n, (i, d) in enumerate(zip(of_indices, shape, strict=True)) if n != axis)
    if static_shape(updates) != of_indices or not fits or not prod(of_indices):
        return None
    scatter = _Scatter(rewriter, data, updates, len(shape), prod(of_indices), device)
    found = known.value(rewriter, indices)
    if found is not None:
        return scatter.known(known_indices.elements(found, axis), reduction)
    compute = partial(ops.places_elements, shape=shape, axis=axis)
    return scatter.unknown(scatter.emit(compute, indices), reduction)


def _slice_scatter(rewriter: Rewriter, call: relax.Call, *, device: _Device) -> relax.Expr | None:
    data, updates, *bounds = call.args
    if not _accepts("update", data, updates):
        return None
    if not all(isinstance(b, tvm.tirx.IntImm) for b in bounds):
        return None
    shape, axis = static_shape(data) or (), int(call.attrs.axis)
    axis %= len(shape)
    start, end, step = (int(b) for b in bounds)
    taken = range(*slice(start, end, step).indices(shape[axis]))
    counts = tuple(len(taken) if n == axis else size for n, size in enumerate(shape))
    if step < 1 or not prod(counts) or static_shape(updates) != counts:
        return None
    starts, steps = [0] * len(shape), [1] * len(shape)
    starts[axis], steps[axis] = taken.start, step
    box = Box(tuple(starts), tuple(steps), counts)
    scatter = _Scatter(rewriter, data, updates, len(shape), prod(counts), device)
    return scatter.box(box, "update")


def _index_put(rewriter: Rewriter, call: relax.Call, *, device: _Device) -> relax.Expr | None:
    """Rewrite it as a scatter_nd whose coordinates are the broadcast index tensors stacked."""
    data, indices, values = call.args
    parts = known.fields(rewriter, indices)
    shapes = [static_shape(p) for p in parts]
    if not parts or any(s is None for s in shapes) or not _accepts("update", data, *parts, values):
        return None
    reduction = "add" if call.attrs.accumulate else "update"
    shape = np.broadcast_shapes(*(s for s in shapes if s is not None))
    wanted = (*shape, *(static_shape(data) or ())[len(parts) :])
    emit = rewriter.emit
    if static_shape(values) != wanted:
        values = emit(relax.op.broadcast_to(values, wanted))
    # TVM's own index_put writes duplicates in any order, even when it adds them up.
    same = relax.op.scatter_nd(data, coordinates(emit, parts, shape), values, reduction)
    return _scatter_nd(rewriter, same, device=device)


def _unchanged(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Return the data itself if there is nothing to write, or nowhere to write it."""
    data, updates = call.args[0], call.args[2]
    shapes = static_shape(data), static_shape(updates)
    return data if any(shape is not None and not prod(shape) for shape in shapes) else None


def drop_empty_scatters() -> tvm.transform.Pass:
    """Return a pass that removes scatters of no updates: TVM's folding divides by their number."""
    return rewrite_calls(
        "DropEmptyScatters",
        {"relax.scatter_nd": _unchanged, "relax.scatter_elements": _unchanged},
    )


def fast_scatter(target: Target) -> tvm.transform.Pass:
    """Return the pass for `target`."""
    device = _Device(gpu=target.device == "cuda")
    handlers: dict[str, Handler] = {
        "relax.scatter_nd": partial(_scatter_nd, device=device),
        "relax.scatter_elements": partial(_scatter_elements, device=device),
        "relax.index_put": partial(_index_put, device=device),
        "relax.slice_scatter": partial(_slice_scatter, device=device),
    }
    return rewrite_calls("FastScatter", handlers)
