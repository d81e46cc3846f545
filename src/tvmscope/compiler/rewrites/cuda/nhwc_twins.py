"""NHWC twins: the tensors whose permutations to NCHW a graph reads, and how operands join them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import Rewriter, bound_call, is_scalar, static_shape

TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)


def twin(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the NHWC tensor whose permutation is `value`."""
    call = bound_call(rewriter, value, "permute_dims")
    if call is not None and axes_of(call) == TO_NCHW:
        return call.args[0]
    return None


def axes_of(call: relax.Call) -> tuple[int, ...]:
    """Return the axes of a permutation."""
    rank = len(static_shape(call) or ())
    axes = call.attrs.axes
    return tuple(int(a) for a in axes) if axes is not None else tuple(reversed(range(rank)))


def back(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """Permute `value`, which is NHWC, to the layout of the rest of the graph."""
    return relax.op.permute_dims(rewriter.emit(value), TO_NCHW)


def nhwc_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an NCHW shape in the order of NHWC."""
    return tuple(shape[a] for a in TO_NHWC)


def to_nhwc(data: relax.Expr) -> relax.Expr:
    """Permute an NCHW tensor; a reshape does it if the order stays the same."""
    shape = static_shape(data)
    if shape is not None and is_free(shape):
        return relax.op.reshape(data, nhwc_shape(shape))
    return relax.op.permute_dims(data, TO_NHWC)


def is_free(shape: tuple[int, ...]) -> bool:
    """Whether single pixels or single channels have the same order in both layouts."""
    return shape[1] == 1 or shape[2] == shape[3] == 1


def operands(rewriter: Rewriter, values: Sequence[relax.Expr]) -> list[relax.Expr] | None:
    """Return operands of one operator in NHWC.

    Those without a twin are permuted, unless they have more elements than those with one: then it
    is cheaper to permute the latter, and the operator stays as it is (None).
    """
    twins = [twin(rewriter, v) for v in values]
    known = sum(prod(static_shape(t) or ()) for t in twins if t is not None)
    missing = [v for v, t in zip(values, twins, strict=True) if t is None]
    if len(missing) == len(values) or sum(map(_moved_elements, missing)) > known:
        return None
    pairs = zip(values, twins, strict=True)
    return [_permuted(rewriter, v) if t is None else t for v, t in pairs]


def _moved_elements(value: relax.Expr) -> float:
    """Return how many elements a permutation would move when the model runs."""
    if is_scalar(value):
        return 0
    shape = static_shape(value)
    if shape is None or len(shape) > len(TO_NHWC):
        return inf
    whole = _of_rank_4(shape)
    return 0 if isinstance(value, GenericConst) or is_free(whole) else prod(whole)


def _permuted(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    if is_scalar(value):
        return value
    if isinstance(value, GenericConst):
        array = value.value.numpy()
        array = array.reshape(_of_rank_4(array.shape))
        return relax.const(np.ascontiguousarray(array.transpose(TO_NHWC)))
    shape = static_shape(value) or ()
    whole = _of_rank_4(shape)
    if shape != whole:
        value = rewriter.emit(relax.op.reshape(value, whole))
    return rewriter.emit(to_nhwc(value))


def _of_rank_4(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape with the leading ones of broadcasting."""
    return (1,) * (len(TO_NHWC) - len(shape)) + tuple(shape)
