"""Normalisation with a variance in two passes: first the mean, then the squares around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import op

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)


def _moments(node: Node, data: relax.Expr, axes: Sequence[int]) -> tuple[relax.Expr, ...]:
    """Return the differences from the mean, the mean and the variance; reduced axes are kept."""
    mean = node.emit(op.mean(data, list(axes), keepdims=True))
    around = node.emit(op.subtract(data, mean))
    squares = node.emit(op.multiply(around, around))
    return around, mean, node.emit(op.mean(squares, list(axes), keepdims=True))


def _inverse_root(node: Node, variance: relax.Expr) -> relax.Expr:
    epsilon = const(node.get("epsilon", 1e-5), dtype_of(variance))
    return node.emit(op.rsqrt(node.emit(op.add(variance, epsilon))))


def _layer_norm(node: Node) -> relax.Expr:
    """Normalise over all axes from `axis` on; the mean and the scale are further outputs."""
    data, scale, bias = node.input(0), node.input(1), node.given(2)
    shape = shape_of(data)
    first = int(node.get("axis", -1)) % len(shape)
    axes = list(range(first, len(shape)))
    dtype = dtype_of(data)
    if node.results == 1 and shape_of(scale) == shape[first:] and dtype == "float32":
        held = bias if bias is not None else const(np.zeros(shape[first:]), dtype)
        return _by_rows(node, data, scale, held, first)
    wide = data if dtype in ("float32", "float64") else node.emit(op.astype(data, "float32"))
    around, mean, variance = _moments(node, wide, axes)
    root = _inverse_root(node, variance)
    result = node.emit(op.multiply(around, root))
    if dtype_of(result) != dtype:
        result = node.emit(op.astype(result, dtype))
    result = node.emit(op.multiply(result, scale))
    if bias is not None:
        result = node.emit(op.add(result, bias))
    return relax.Tuple([result, mean, root][: max(node.results, 1)])


def _by_rows(
    node: Node, data: relax.Expr, scale: relax.Expr, bias: relax.Expr, first: int
) -> relax.Expr:
    """Normalise the rows of a matrix, which the row kernels support."""
    shape = shape_of(data)
    length = int(np.prod(shape[first:]))
    rows = node.emit(op.reshape(data, (max(int(np.prod(shape[:first])), 1), length)))
    gain, offset = (node.emit(op.reshape(x, (length,))) for x in (scale, bias))
    epsilon = float(node.get("epsilon", 1e-5))
    done = op.nn.layer_norm(rows, gain, offset, axes=[-1], epsilon=epsilon)
    return node.emit(op.reshape(node.emit(done), shape))


def _rms_norm(node: Node) -> relax.Expr:
    data, scale = node.input(0), node.input(1)
    shape, dtype = shape_of(data), dtype_of(data)
    axes = list(range(int(node.get("axis", -1)) % len(shape), len(shape)))
    wide = data if dtype in ("float32", "float64") else node.emit(op.astype(data, "float32"))
    squares = node.emit(op.multiply(wide, wide))
    root = _inverse_root(node, node.emit(op.mean(squares, axes, keepdims=True)))
    result = node.emit(op.multiply(wide, root))
    if dtype_of(result) != dtype:
        result = node.emit(op.astype(result, dtype))
    return op.multiply(result, scale)


def _batch_norm(node: Node) -> relax.Expr | None:
    """Convert training mode: use the batch's statistics; the running ones are further outputs."""
    if not node.get("training_mode", 0):
        return None
    data = node.input(0)
    scale, bias, mean_before, variance_before = (node.input(i) for i in range(1, 5))
    shape = shape_of(data)
    axes = [n for n in range(len(shape)) if n != 1]
    around, mean, variance = _moments(node, data, axes)
    along = (shape[1], *[1] * (len(shape) - 2))
    scaled = node.emit(op.multiply(around, _inverse_root(node, variance)))
    scaled = node.emit(op.multiply(scaled, node.emit(op.reshape(scale, along))))
    result = node.emit(op.add(scaled, node.emit(op.reshape(bias, along))))
    momentum = float(node.get("momentum", 0.9))
    running = []
    for before, now in ((mean_before, mean), (variance_before, variance)):
        flat = node.emit(op.reshape(now, (shape[1],)))
        kept = node.emit(op.multiply(before, const(momentum, dtype_of(before))))
        fresh = node.emit(op.multiply(flat, const(1 - momentum, dtype_of(flat))))
        running.append(node.emit(op.add(kept, fresh)))
    return relax.Tuple([result, *running][: max(node.results, 1)])


def _grouped(node: Node, groups: int) -> relax.Expr:
    """Normalise rows, one per group of channels; scale and bias are per channel."""
    data, scale, bias = node.input(0), node.input(1), node.input(2)
    shape = shape_of(data)
    length = int(np.prod(shape[1:])) // groups
    rows = node.emit(op.reshape(data, (shape[0] * groups, length)))
    dtype = dtype_of(data)
    ones, zeros = const(np.ones(length), dtype), const(np.zeros(length), dtype)
    epsilon = float(node.get("epsilon", 1e-5))
    done = node.emit(op.nn.layer_norm(rows, ones, zeros, axes=[-1], epsilon=epsilon))
    whole = node.emit(op.reshape(done, shape))
    along = (shape[1], *[1] * (len(shape) - 2))
    held = []
    for value in (scale, bias):
        if shape_of(value)[0] == groups != shape[1]:  # opset 18: one for each group
            value = node.emit(op.repeat(value, shape[1] // groups, 0))
        held.append(node.emit(op.reshape(value, along)))
    return op.add(node.emit(op.multiply(whole, held[0])), held[1])


def _group_norm(node: Node) -> relax.Expr | None:
    if dtype_of(node.input(0)) != "float32":
        return None
    return _grouped(node, int(node.attributes["num_groups"]))


def _instance_norm(node: Node) -> relax.Expr | None:
    if dtype_of(node.input(0)) != "float32":
        return None
    return _grouped(node, shape_of(node.input(0))[1])


def _lp_norm(node: Node) -> relax.Expr:
    """Divide by the 1- or 2-norm along an axis; a vector of zeros is unchanged."""
    data, axis = node.input(0), int(node.get("axis", -1))
    dtype = dtype_of(data)
    if int(node.get("p", 2)) == 1:
        norm = node.emit(op.sum(node.emit(op.abs(data)), axis, keepdims=True))
    else:
        squares = node.emit(op.multiply(data, data))
        norm = node.emit(op.sqrt(node.emit(op.sum(squares, axis, keepdims=True))))
    empty = node.emit(op.equal(norm, const(0, dtype)))
    return op.divide(data, node.emit(op.where(empty, const(1, dtype), norm)))


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
}
