"""Imports ONNX's Resize: each axis separately, with indices and weights computed at import.

TVM's importer rounds coordinates differently, takes no `axes`, antialiasing or aspect ratio policy,
and resizes two axes at most. Shapes are known here, so the elements of each output and their
weights are constants: nearest neighbours become a `take`, a few taps a sum of scaled takes, many
taps a product with a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

Array = np.ndarray[Any, Any]
_MOST_TAKES = 4
"""More taps than this become a matrix product."""


@dataclass(frozen=True)
class Axis:
    """One axis to resize, and how; the fields are ONNX's attributes."""

    size: int
    """The input's size."""
    output: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False

    @property
    def places(self) -> Array:
        """Return the input coordinate of each output element."""
        x, width = np.arange(self.output, dtype=np.float64), self.scale * self.size
        start, end = self.roi
        middle = (x + 0.5) / self.scale - 0.5
        match self.coordinates:
            case "asymmetric":
                return x / self.scale
            case "align_corners":
                return x * ((self.size - 1) / (width - 1) if width != 1 else 0.0)
            case "pytorch_half_pixel":
                return middle if width != 1 else np.full(self.output, -0.5)
            case "half_pixel_symmetric":
                return middle + self.size / 2 * (1 - self.output / width)
            case "tf_half_pixel_for_nn":
                return middle + 0.5
            case "tf_crop_and_resize":
                span = (end - start) * (self.size - 1)
                steps = x * span / (width - 1) if width != 1 else np.full(self.output, span / 2)
                return start * (self.size - 1) + steps
        return middle

    @property
    def outside(self) -> Array:
        """Return which output elements lie outside the input: only crops extend beyond it."""
        if self.coordinates != "tf_crop_and_resize":
            return np.zeros(self.output, bool)
        return (self.places < 0) | (self.places > self.size - 1)

    def neighbours(self) -> Array:
        """Return the input element that each output element takes, in nearest mode."""
        places = self.places
        below = np.floor(places)
        part = places - below
        up = {
            "floor": np.zeros_like(part, bool),
            "ceil": part > 0,
            "round_prefer_floor": part > 0.5,
            "round_prefer_ceil": part >= 0.5,
        }[self.nearest]
        return np.asarray(np.clip(below + up, 0, self.size - 1), np.int64)

    def taps(self) -> tuple[Array, Array]:
        """Return arrays of output x taps: the indices of input elements, and their weights."""
        radius, kernel = (1, _linear) if self.mode == "linear" else (2, self._cubic)
        stretch = min(self.scale, 1.0) if self.antialias else 1.0
        reach = int(np.ceil(radius / stretch))
        places = self.places
        wanted = np.floor(places)[:, None] + np.arange(1 - reach, reach + 1)
        weights = kernel(np.abs(wanted - places[:, None]) * stretch)
        if self.exclude_outside:
            weights = weights * ((wanted >= 0) & (wanted < self.size))
        if self.exclude_outside or self.antialias:
            weights = weights / weights.sum(1, keepdims=True)
        return np.clip(wanted, 0, self.size - 1).astype(np.int64), weights

    def _cubic(self, x: Array) -> Array:
        a = self.cubic
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _linear(x: Array) -> Array:
    return np.asarray(np.clip(1 - x, 0, None))


def resize(
    builder: relax.BlockBuilder, data: relax.Expr, axes: dict[int, Axis], fill: float
) -> relax.Expr:
    """Resize some axes of `data`; elements outside a crop become `fill`."""
    dtype = str(data.ty.dtype)
    nearest = all(axis.mode == "nearest" for axis in axes.values())
    wide = not nearest and not dtype.startswith("float")
    result = builder.emit(relax.op.astype(data, "float32")) if wide else data
    factors = _whole_factors(axes) if nearest else None
    if factors is not None and len(data.ty.shape) == 4 and set(axes) <= {2, 3}:
        result = builder.emit(_repeat(result, factors))
    else:
        for number, axis in axes.items():
            result = builder.emit(_along(builder, result, number, axis))
    result = _filled(builder, result, axes, fill)
    return builder.emit(_narrow(builder, result, dtype)) if wide else result


def _whole_factors(axes: dict[int, Axis]) -> dict[int, int] | None:
    """Return by axis how often each element is repeated, if resizing only repeats elements."""
    factors = {}
    for number, axis in axes.items():
        factor = axis.output // axis.size if axis.output % axis.size == 0 else 0
        if not factor or (axis.neighbours() != np.arange(axis.output) // factor).any():
            return None
        factors[number] = factor
    return factors


def _repeat(data: relax.Expr, factors: dict[int, int]) -> relax.Expr:
    """Repeat elements with an operator that keeps its layout among convolutions."""
    sizes = [int(data.ty.shape[n]) * factors.get(n, 1) for n in (2, 3)]
    return relax.op.image.resize2d(
        data,
        relax.ShapeExpr(sizes),
        layout="NCHW",
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )


def _along(builder: relax.BlockBuilder, data: relax.Expr, number: int, axis: Axis) -> relax.Expr:
    if axis.mode == "nearest":
        return relax.op.take(data, relax.const(axis.neighbours()), axis=number)
    indices, weights = axis.taps()
    used = [n for n in range(weights.shape[1]) if np.any(weights[:, n])]
    dtype = str(data.ty.dtype)
    if len(used) > _MOST_TAKES:
        return _product(builder, data, number, _matrix(axis, indices, weights).astype(dtype))
    shape = [1] * len(data.ty.shape)
    shape[number] = axis.output
    total: relax.Expr | None = None
    for n in used:
        taken = builder.emit(relax.op.take(data, relax.const(indices[:, n]), axis=number))
        factor = relax.const(weights[:, n].reshape(shape).astype(dtype), dtype)
        part = builder.emit(relax.op.multiply(taken, factor))
        total = part if total is None else builder.emit(relax.op.add(total, part))
    assert total is not None  # the weights of an element sum to 1
    return total


def _matrix(axis: Axis, indices: Array, weights: Array) -> Array:
    matrix = np.zeros((axis.size, axis.output))
    np.add.at(matrix, (indices, np.arange(axis.output)[:, None]), weights)
    return matrix


def _product(
    builder: relax.BlockBuilder, data: relax.Expr, number: int, matrix: Array
) -> relax.Expr:
    order = list(range(len(data.ty.shape)))
    order[number], order[-1] = order[-1], order[number]
    moved = builder.emit(relax.op.permute_dims(data, order))
    done = builder.emit(relax.op.matmul(moved, relax.const(matrix, str(matrix.dtype))))
    return relax.op.permute_dims(done, order)


def _filled(
    builder: relax.BlockBuilder, data: relax.Expr, axes: dict[int, Axis], fill: float
) -> relax.Expr:
    shape: Sequence[int] = [int(size) for size in data.ty.shape]
    outside = np.zeros([1] * len(shape), bool)
    for number, axis in axes.items():
        along = [1] * len(shape)
        along[number] = axis.output
        outside = outside | axis.outside.reshape(along)
    if not outside.any():
        return data
    value = relax.const(fill, str(data.ty.dtype))
    return builder.emit(relax.op.where(relax.const(outside), value, data))


def _narrow(builder: relax.BlockBuilder, data: relax.Expr, dtype: str) -> relax.Expr:
    """Convert to whole numbers, clamped to their range."""
    limits = np.iinfo(dtype)
    low = builder.emit(relax.op.maximum(data, relax.const(float(limits.min), "float32")))
    both = builder.emit(relax.op.minimum(low, relax.const(float(limits.max), "float32")))
    return relax.op.astype(both, dtype)
