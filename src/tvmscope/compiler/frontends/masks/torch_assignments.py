"""Translates assignments to masks in PyTorch to Relax operators of fixed sizes.

    x[mask] = value                   -> where(mask, value, x)
    x[mask] = values                  -> where(mask, values[rank in mask], x)
    masked_scatter(x, mask, values)   -> the same; there may be more values than selected elements

The number of values is checked at run time: if it differs from the number of selected elements, the
result is NaN at those elements. Integers have no NaN, so such an assignment is refused, and so is
one whose size is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax
from tvm.tirx import IntImm

from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.messages import msg

Emit = Callable[[relax.Expr], relax.Var]
"""The `emit` of a block builder."""
_UNKNOWN_SIZE = msg(
    "its size is the number of elements that a mask selects: known at run time only"
)


def is_mask(index: relax.Expr | None) -> bool:
    """Whether an index is a mask, whose truth values TVM's importer would treat as indices."""
    return index is not None and str(index.ty.dtype) == "bool"


def refuse_masks(indices: list[relax.Expr | None]) -> None:
    """Raise if an index is a mask: the size of its selection is known at run time only."""
    if any(map(is_mask, indices)):
        raise Unsupported(_UNKNOWN_SIZE)


def put_mask(
    emit: Emit, data: relax.Expr, axis: int, mask: relax.Expr, values: relax.Expr, *, adds: bool
) -> relax.Var:
    """Translate `data[..., mask] = values`, with `axis` axes before those of the mask; or `+=`."""
    op = relax.op
    after = data.ty.ndim - axis - mask.ty.ndim
    values = _over_mask(emit, values, mask, after)
    if adds:
        values = emit(op.add(data, values))
    spread = emit(op.reshape(mask, (*mask.ty.shape, *(1,) * after)))
    return emit(op.where(spread, values, data))


def masked_scatter(emit: Emit, data: relax.Expr, mask: relax.Expr, source: relax.Expr) -> relax.Var:
    """Assign the elements of `source`, in order, to the selected elements of `data`."""
    op = relax.op
    shape = np.broadcast_shapes(*(tuple(int(d) for d in v.ty.shape) for v in (data, mask)))
    mask = emit(op.broadcast_to(mask, shape))
    found = _picked(emit, emit(op.reshape(source, (-1,))), 0, mask, exactly=False)
    return emit(op.where(mask, emit(op.reshape(found, shape)), data))


def _over_mask(emit: Emit, values: relax.Expr, mask: relax.Expr, after: int) -> relax.Expr:
    """Return the values, with the axis of selected elements replaced by the axes of the mask."""
    shape = list(values.ty.shape)
    if len(shape) <= after:
        return values
    *before, chosen = shape[: len(shape) - after]
    if not isinstance(chosen, IntImm):
        raise Unsupported(_UNKNOWN_SIZE)
    axes = [1] * mask.ty.ndim
    if int(chosen) != 1:
        axes = list(mask.ty.shape)
        values = _picked(emit, values, len(before), mask, exactly=True)
    last = shape[len(shape) - after :]
    return emit(relax.op.reshape(values, (*before, *axes, *last)))


def _picked(
    emit: Emit, values: relax.Expr, axis: int, mask: relax.Expr, *, exactly: bool
) -> relax.Var:
    """Return for each element of a mask the next one of the values along an axis.

    The result is NaN if the number of values differs from the number of selected elements, or is
    too small.
    """
    op = relax.op
    size, elements = int(values.ty.shape[axis]), prod(int(d) for d in mask.ty.shape)
    enough = not exactly and size >= elements
    dtype = str(values.ty.dtype)
    if not size or not (enough or "float" in dtype):
        raise Unsupported(_UNKNOWN_SIZE)
    numbers = emit(op.astype(emit(op.reshape(mask, (elements,))), "int64"))
    before = emit(op.cumsum(numbers, 0, exclusive=True))
    before = emit(op.minimum(before, relax.const(size - 1, "int64")))
    found = emit(op.take(values, before, axis))
    if enough:
        return found
    test = op.equal if exactly else op.less_equal
    right = emit(test(emit(op.sum(numbers)), relax.const(size, "int64")))
    return emit(op.where(right, found, relax.const(np.nan, dtype)))
