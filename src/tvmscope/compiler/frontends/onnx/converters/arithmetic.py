"""Elementwise operators whose types or cases TVM's importer does not cover, and scans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from tvm import relax, te, tirx
from tvm.relax import op

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.messages import msg


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _pow(node: Node) -> relax.Expr | None:
    """Convert Pow; the result has the base's type, whatever the exponent's type is."""
    base, exponent = node.input(0), node.input(1)
    kinds = dtype_of(base), dtype_of(exponent)
    if kinds[0] == kinds[1] and _is_float(kinds[0]):
        return None
    wide = kinds[0] if _is_float(kinds[0]) else "float64"
    held = [x if dtype_of(x) == wide else node.emit(op.astype(x, wide)) for x in (base, exponent)]
    result = node.emit(op.power(*held))
    return result if wide == kinds[0] else node.emit(op.astype(result, kinds[0]))


def _is_inf(node: Node) -> relax.Expr | None:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    data = node.input(0)
    dtype = dtype_of(data)
    if positive and negative:
        return None
    if not positive and not negative:
        return const(np.zeros(shape_of(data)), "bool")
    return op.equal(data, const(np.inf if positive else -np.inf, dtype))


def _clip(node: Node) -> relax.Expr | None:
    """Convert Clip; with constant bounds it is one operator, which layouts and fusion handle.

    A bound of NaN is no bound.
    """
    data = node.input(0)
    if node.opset < 11:
        bounds = [node.get("min", np.nan), node.get("max", np.nan)]
    else:
        given = [node.given(1), node.given(2)]
        arrays = [node.array(1), node.array(2)]
        if any(g is not None and a is None for g, a in zip(given, arrays, strict=True)):
            return None
        bounds = [np.nan if a is None else a.item() for a in arrays]
    if not _is_float(dtype_of(data)):
        return None
    low, high = (float(b) for b in bounds)
    if np.isfinite(low) and np.isfinite(high):
        return node.emit(op.clip(data, min(low, high), high))  # ONNX: the upper bound wins
    for join, bound in ((op.maximum, low), (op.minimum, high)):
        if not np.isnan(bound):
            data = node.emit(join(data, const(bound, dtype_of(data))))
    return data


def _hyperbolic(node: Node, join: Callable[..., relax.Expr]) -> relax.Expr:
    """Compute it with exponentials: LLVM has no such intrinsic, and no library is linked."""
    data = node.input(0)
    there = node.emit(op.exp(data))
    back = node.emit(op.exp(node.emit(op.negative(data))))
    return node.emit(op.multiply(node.emit(join(there, back)), const(0.5, dtype_of(data))))


def _cosh(node: Node) -> relax.Expr:
    return _hyperbolic(node, op.add)


def _sinh(node: Node) -> relax.Expr:
    """Convert Sinh; near zero a series replaces the difference of exponentials, which cancels."""
    data = node.input(0)
    dtype = dtype_of(data)
    wide = _hyperbolic(node, op.subtract)
    square = node.emit(op.multiply(data, data))
    series = const(1 / 5040, dtype)
    for factor in (1 / 120, 1 / 6, 1.0):
        scaled = node.emit(op.multiply(series, square))
        series = node.emit(op.add(scaled, const(factor, dtype)))
    near = node.emit(op.multiply(series, data))
    small = node.emit(op.less(node.emit(op.abs(data)), const(0.5, dtype)))
    return op.where(small, near, wide)


def _bit_cast(node: Node) -> relax.Expr:
    """Reinterpret the bits as another type of the same width."""
    data, wanted = node.input(0), str(tensor_dtype_to_np_dtype(node.get("to", 1)))
    if np.dtype(wanted).itemsize != np.dtype(dtype_of(data)).itemsize:
        raise Unsupported(msg("types of different widths"))

    def bits(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.reinterpret(wanted, x(*i)), name="bit_cast")

    return node.builder.emit_te(bits, data)


def _cumulative(name: str) -> Converter:
    """Return a converter for CumSum or CumProd, also reversed and exclusive."""

    def convert(node: Node) -> relax.Expr:
        data = node.input(0)
        axis = node.constant(1)
        if axis is None:
            raise Unsupported(msg("no axis"))
        number = int(axis.item()) % len(shape_of(data))
        scan = op.cumsum if name == "CumSum" else op.cumprod
        held = node.emit(op.flip(data, number)) if node.get("reverse", 0) else data
        dtype = dtype_of(data)
        alone = bool(node.get("exclusive", 0))
        result = node.emit(scan(held, number, dtype=dtype, exclusive=alone))
        return node.emit(op.flip(result, number)) if node.get("reverse", 0) else result

    return convert


def _eye_like(node: Node) -> relax.Expr:
    data = node.input(0)
    rows, columns = shape_of(data)
    asked = node.get("dtype", None)
    dtype = dtype_of(data) if asked is None else str(tensor_dtype_to_np_dtype(asked))
    return const(np.eye(rows, columns, int(node.get("k", 0))), dtype)


def _dropout(node: Node) -> relax.Expr:
    """Convert Dropout to its input: elements are dropped only in training (not compiled)."""
    data, ratio, training = node.input(0), node.constant(1), node.constant(2)
    drops = 0.5 if ratio is None else float(ratio.item())
    if training is not None and bool(training.item()) and drops > 0:
        raise Unsupported(msg("dropout in training mode"))
    kind = "bool" if node.opset >= 10 else dtype_of(data)
    return relax.Tuple([data, const(np.ones(shape_of(data)), kind)][: max(node.results, 1)])


def _sum_of(join: Callable[..., relax.Expr]) -> Converter:
    """Return a converter for an operator of any number of inputs, in the inputs' own type."""

    def convert(node: Node) -> relax.Expr:
        total = node.input(0)
        for index in range(1, len(node.inputs)):
            total = node.emit(join(total, node.input(index)))
        return total

    return convert


CONVERTERS: dict[str, Converter] = {
    "BitCast": _bit_cast,
    "Clip": _clip,
    "Cosh": _cosh,
    "CumProd": _cumulative("CumProd"),
    "CumSum": _cumulative("CumSum"),
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "IsInf": _is_inf,
    "Max": _sum_of(op.maximum),
    "Min": _sum_of(op.minimum),
    "Pow": _pow,
    "Sinh": _sinh,
}
