"""Scatters into boxes: every step-th index of each axis, as in assignments to slices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.kernels.loops import COMBINE, Cells, extern, flat, phases, product, unflat
from tvmscope.compiler.kernels.scatter.known_indices import Box

Expr = tirx.Expr
BOXES = "tvmscope.boxes"
"""Attribute of a kernel that copies and then writes boxes: the data that `overwrite` needs."""
_RUN = 4096
"""Elements that are copied before some of them are overwritten: they are still in the cache."""


def put_box(data: te.Tensor, updates: te.Tensor, box: Box, reduction: str) -> te.Tensor:
    """Write `updates` into a box of the leading axes of `data`; they have the box's shape there."""
    combine, lead = COMBINE[reduction], len(box.counts)

    def value(*i: Expr) -> Expr:
        inside, places = _offsets(box, i, data.shape)
        new = combine(data(*i), updates(*places, *i[lead:]))
        return tirx.if_then_else(tirx.all(*inside), new, data(*i)) if inside else new

    return te.compute(data.shape, value, name="scatter_box")


def copy_boxes(data: te.Tensor, *updates: te.Tensor, boxes: Sequence[Box], rows: int) -> te.Tensor:
    """Write each of `updates` into its box of `data`, in order; the first `rows` axes are rows.

    For CPUs, where a condition for each element prevents vectorisation: each row is copied, then
    the elements of a box are copied over it.
    """
    shape = [int(size) for size in data.shape]
    count, length = product(shape[:rows]), product(shape[rows:])
    group = _group(count, length)

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        old, out = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])

        def copy(block: Expr) -> None:
            with T.serial(0, group * length) as j:
                out[block * (group * length) + j] = old[block * (group * length) + j]
            _write_boxes(out, ins[1:], boxes, rows, shape, block * group, group)

        return phases([(count // group, copy, False)], gpu=False)

    return extern([data.shape], [data, *updates], build, [data.dtype], "scatter_copy")[0]


def boxes_text(boxes: Sequence[Box], rows: int) -> str:
    """Return the value of the attribute BOXES."""
    return json.dumps({"boxes": [asdict(box) for box in boxes], "rows": rows})


def overwrite(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrite a kernel of `copy_boxes` without the copy: its first argument is also the result."""
    told = json.loads(kernel.attrs[BOXES])
    boxes = [Box(**{key: tuple(value) for key, value in box.items()}) for box in told["boxes"]]
    *inputs, _ = kernel.params
    shape = [int(size) for size in inputs[0].shape]
    count, length = product(shape[: told["rows"]]), product(shape[told["rows"] :])
    group = _group(count, length)
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        out, *updates = (
            T.arg(f"x{n}", T.buffer(tuple(b.shape), str(b.dtype))) for n, b in enumerate(inputs)
        )
        with T.parallel(0, count // group) as block:
            target = T.buffer_proxy(out)
            _write_boxes(target, updates, boxes, told["rows"], shape, block * group, group)
    made: tirx.PrimFunc = builder.get()
    return made


def _group(count: int, length: int) -> int:
    """Return how many rows are processed together: a divisor of their number."""
    return max(g for g in range(1, max(1, _RUN // length) + 1) if count % g == 0)


def _write_boxes(
    out: Cells,
    updates: Sequence[tirx.Buffer],
    boxes: Sequence[Box],
    rows: int,
    shape: Sequence[int],
    first: Expr,
    count: int,
) -> None:
    """In `count` rows from `first`, copy the elements of each box from its update."""
    length = product(shape[rows:])
    for source, box in zip(updates, boxes, strict=True):
        new = T.buffer_proxy(source)
        with T.serial(0, count) as n:
            row = first + n
            inside, place = _inside(box, row, shape, rows)
            start, run = box.run(rows, shape)
            here = tirx.all(*inside, tirx.const(True, "bool"))
            with T.If(here), T.Then(), T.serial(0, run) as j:
                out[row * length + start + j] = new[place * run + j]


def _inside(box: Box, row: Expr, shape: Sequence[int], rows: int) -> tuple[list[Expr], Expr]:
    """Return the conditions under which a row of the data is in a box, and its row in the box."""
    counts = (*box.counts, *shape[len(box.counts) :])
    if counts[:rows] == tuple(shape[:rows]):
        return [], row
    at = unflat(row, shape[:rows])
    inside, places = _offsets(box, at, shape)
    places += at[len(box.counts) :]
    return inside, flat(places, counts[:rows])


def _offsets(
    box: Box, at: Sequence[Expr], shape: Sequence[Expr | int]
) -> tuple[list[Expr], list[Expr]]:
    """Return the conditions under which an element is in a box, and its index in the box."""
    inside, places = [], []
    for axis, size, start, step, count in zip(
        at, shape, box.starts, box.steps, box.counts, strict=False
    ):
        offset, last = axis - start, start + step * (count - 1)
        inside += [axis >= start] if start else []
        inside += [axis <= last] if last < int(size) - 1 else []
        inside += [tirx.floormod(offset, step) == 0] if step > 1 else []
        places.append(tirx.floordiv(offset, step) if step > 1 else offset)
    return inside, places
