"""Relax operators that numpy evaluates: the arithmetic of constants, by operator name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

Array = np.ndarray[Any, Any]
Evaluate = Callable[[Sequence[Array], relax.Call], Array]
"""Takes the values of a call's tensors, in order, and the call, whose shape is known."""


def shape_of(call: relax.Call) -> tuple[int, ...]:
    """Return the shape of a call's result, which is completely known."""
    return tuple(int(d) for d in call.ty.shape)


def _broadcast(args: Sequence[Array], call: relax.Call) -> Array:
    return np.broadcast_to(args[0], shape_of(call))


def _cast(args: Sequence[Array], call: relax.Call) -> Array:
    return args[0].astype(str(call.attrs.dtype))


def _permute(args: Sequence[Array], call: relax.Call) -> Array:
    axes = call.attrs.axes
    return np.transpose(args[0], [int(a) for a in axes] if axes is not None else None)


def _slice(args: Sequence[Array], call: relax.Call) -> Array:
    """Take the tensor, then axes, begins, ends and, if given, strides, each a number."""
    data, rest = args[0], [int(a) for a in args[1:]]
    parts = len(call.args) - 1
    count = len(rest) // parts
    axes, begins, ends = (rest[n * count : (n + 1) * count] for n in range(3))
    strides = rest[3 * count :] or [1] * count
    taken = [slice(None)] * data.ndim
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        taken[axis] = slice(begin, end, stride)
    return data[tuple(taken)]


def _joined(args: Sequence[Array], call: relax.Call) -> Array:
    return np.concatenate(args, axis=_axis(call))


def _range(args: Sequence[Array], call: relax.Call) -> Array:
    return np.arange(*(a.item() for a in args)).astype(str(call.ty.dtype))


def _filled(args: Sequence[Array], call: relax.Call) -> Array:
    return np.full(shape_of(call), args[-1].item(), str(call.ty.dtype))


def _sums(args: Sequence[Array], call: relax.Call) -> Array:
    """Return cumulative sums."""
    sums = np.cumsum(args[0], axis=_axis(call), dtype=str(call.ty.dtype))
    return sums - args[0].reshape(sums.shape) if call.attrs.exclusive else sums


def _taken(args: Sequence[Array], call: relax.Call) -> Array:
    """Take elements by index; -1 is the last one."""
    data, places, axis = args[0], args[1], _axis(call)
    return np.take(data, places, axis, mode="clip" if call.attrs.mode == "clip" else "wrap")


def _product(args: Sequence[Array], call: relax.Call) -> Array:
    """Return a product of matrices; sums of half precision are in single precision."""
    wide = (a.astype(np.promote_types(a.dtype, np.float32)) for a in args)
    return np.matmul(*wide).astype(args[0].dtype)


def _axis(call: relax.Call) -> int | None:
    return None if call.attrs.axis is None else int(call.attrs.axis)


TABLE: dict[str, Evaluate] = {
    "relax.add": lambda a, c: a[0] + a[1],
    "relax.subtract": lambda a, c: a[0] - a[1],
    "relax.multiply": lambda a, c: a[0] * a[1],
    "relax.divide": lambda a, c: a[0] / a[1],
    "relax.matmul": _product,
    "relax.sqrt": lambda a, c: np.sqrt(a[0]),
    "relax.rsqrt": lambda a, c: (1 / np.sqrt(a[0])).astype(a[0].dtype),
    "relax.negative": lambda a, c: -a[0],
    "relax.abs": lambda a, c: np.abs(a[0]),
    "relax.maximum": lambda a, c: np.maximum(a[0], a[1]),
    "relax.minimum": lambda a, c: np.minimum(a[0], a[1]),
    "relax.isnan": lambda a, c: np.isnan(a[0]),
    "relax.where": lambda a, c: np.where(a[0], a[1], a[2]),
    "relax.equal": lambda a, c: a[0] == a[1],
    "relax.not_equal": lambda a, c: a[0] != a[1],
    "relax.less": lambda a, c: a[0] < a[1],
    "relax.less_equal": lambda a, c: a[0] <= a[1],
    "relax.greater": lambda a, c: a[0] > a[1],
    "relax.greater_equal": lambda a, c: a[0] >= a[1],
    "relax.logical_and": lambda a, c: np.logical_and(a[0], a[1]),
    "relax.logical_or": lambda a, c: np.logical_or(a[0], a[1]),
    "relax.logical_not": lambda a, c: np.logical_not(a[0]),
    "relax.bitwise_and": lambda a, c: np.bitwise_and(a[0], a[1]),
    "relax.bitwise_or": lambda a, c: np.bitwise_or(a[0], a[1]),
    "relax.bitwise_xor": lambda a, c: np.bitwise_xor(a[0], a[1]),
    "relax.bitwise_not": lambda a, c: np.bitwise_not(a[0]),
    "relax.cumsum": _sums,
    "relax.take": _taken,
    "relax.tril": lambda a, c: np.tril(a[0], int(a[1])),
    "relax.triu": lambda a, c: np.triu(a[0], int(a[1])),
    "relax.shape_to_tensor": lambda a, c: a[0],
    "relax.strided_slice": _slice,
    "relax.concat": _joined,
    "relax.stack": lambda a, c: np.stack(a, int(c.attrs.axis or 0)),
    "relax.arange": _range,
    "relax.full": _filled,
    "relax.flatten": lambda a, c: a[0].reshape(-1),
    "relax.reshape": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.expand_dims": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.squeeze": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.permute_dims": _permute,
    "relax.broadcast_to": _broadcast,
    "relax.astype": _cast,
}
FLOAT_ONLY = frozenset({"relax.divide", "relax.matmul", "relax.sqrt", "relax.rsqrt", "relax.isnan"})
"""Operators whose numpy result for integers differs from TVM's."""
