"""Assignments to masks in PyTorch, as Relax operators of fixed sizes.

    x[mask] = value                   -> where(mask, value, x)
    x[mask] = values                  -> where(mask, values[chosen before], x)
    masked_scatter(x, mask, values)   -> the same; there may be more values than chosen elements

Whether there are as many values as chosen elements is seen at run time: if not, those elements are
NaN. Integers have no NaN, so such an assignment is refused, as one is whose size is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax
from tvm.tirx import IntImm

Emit = Callable[[relax.Expr], relax.Var]
"""The `emit` of a block builder."""
_UNKNOWN_SIZE = "as many values as a mask has places: known at run time only"


def is_mask(index: relax.Expr | None) -> bool:
    """Whether an index is a mask, whose truth values TVM's importer would take for indices."""
    return index is not None and str(index.ty.dtype) == "bool"


def refuse_masks(indices: list[relax.Expr | None]) -> None:
    """The size of what a mask selects is known at run time only."""
    if any(map(is_mask, indices)):
        raise ValueError(_UNKNOWN_SIZE)


def put_mask(
    emit: Emit, data: relax.Expr, axis: int, mask: relax.Expr, values: relax.Expr, *, adds: bool
) -> relax.Var:
    """`data[..., mask] = values`, with `axis` axes before those of the mask; or `+=`."""
    op = relax.op
    after = data.ty.ndim - axis - mask.ty.ndim
    values = _over_mask(emit, values, mask, after)
    if adds:
        values = emit(op.add(data, values))
    spread = emit(op.reshape(mask, (*mask.ty.shape, *(1,) * after)))
    return emit(op.where(spread, values, data))


def masked_scatter(emit: Emit, data: relax.Expr, mask: relax.Expr, source: relax.Expr) -> relax.Var:
    """The chosen elements of `data` take those of `source`, one after the other."""
    op = relax.op
    shape = np.broadcast_shapes(*(tuple(int(d) for d in v.ty.shape) for v in (data, mask)))
    mask = emit(op.broadcast_to(mask, shape))
    found = _picked(emit, emit(op.reshape(source, (-1,))), 0, mask, exactly=False)
    return emit(op.where(mask, emit(op.reshape(found, shape)), data))


def _over_mask(emit: Emit, values: relax.Expr, mask: relax.Expr, after: int) -> relax.Expr:
    """The values with the one axis of all chosen elements as the axes of the mask."""
    shape = list(values.ty.shape)
    if len(shape) <= after:
        return values
    *before, chosen = shape[: len(shape) - after]
    if not isinstance(chosen, IntImm):
        raise ValueError(_UNKNOWN_SIZE)
    axes = [1] * mask.ty.ndim
    if int(chosen) != 1:
        axes = list(mask.ty.shape)
        values = _picked(emit, values, len(before), mask, exactly=True)
    last = shape[len(shape) - after :]
    return emit(relax.op.reshape(values, (*before, *axes, *last)))


def _picked(
    emit: Emit, values: relax.Expr, axis: int, mask: relax.Expr, *, exactly: bool
) -> relax.Var:
    """For each element of a mask the value that is next there, along an axis.

    NaN where there are not exactly as many as chosen elements, or not enough.
    """
    op = relax.op
    size, elements = int(values.ty.shape[axis]), prod(int(d) for d in mask.ty.shape)
    enough = not exactly and size >= elements
    dtype = str(values.ty.dtype)
    if not size or not (enough or "float" in dtype):
        raise ValueError(_UNKNOWN_SIZE)
    numbers = emit(op.astype(emit(op.reshape(mask, (elements,))), "int64"))
    before = emit(op.cumsum(numbers, 0, exclusive=True))
    before = emit(op.minimum(before, relax.const(size - 1, "int64")))
    found = emit(op.take(values, before, axis))
    if enough:
        return found
    test = op.equal if exactly else op.less_equal
    right = emit(test(emit(op.sum(numbers)), relax.const(size, "int64")))
    return emit(op.where(right, found, relax.const(np.nan, dtype)))
