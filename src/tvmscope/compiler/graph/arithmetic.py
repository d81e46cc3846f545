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


TABLE: dict[str, Evaluate] = {
    "relax.add": lambda a, c: a[0] + a[1],
    "relax.subtract": lambda a, c: a[0] - a[1],
    "relax.multiply": lambda a, c: a[0] * a[1],
    "relax.divide": lambda a, c: a[0] / a[1],
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
    "relax.reshape": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.expand_dims": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.squeeze": lambda a, c: a[0].reshape(shape_of(c)),
    "relax.permute_dims": _permute,
    "relax.broadcast_to": _broadcast,
    "relax.astype": _cast,
}
FLOAT_ONLY = frozenset({"relax.divide", "relax.sqrt", "relax.rsqrt", "relax.isnan"})
"""Operators whose numpy result for integers differs from TVM's."""
