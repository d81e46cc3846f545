"""Integer products and convolutions: subtract zero points, sum in int32, then scale once."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    dtype_of,
    shape_of,
)


def _centred(
    node: Node, data: relax.Expr, zero: relax.Expr | None, shape: tuple[int, ...] | None = None
) -> relax.Expr:
    """Subtract the zero point in int32; it is reshaped to `shape` unless it is a scalar."""
    wide = node.emit(op.astype(data, "int32"))
    if zero is None:
        return wide
    offset = node.emit(op.astype(zero, "int32"))
    return node.emit(op.subtract(wide, _placed(node, offset, shape)))


def _placed(node: Node, value: relax.Expr, shape: tuple[int, ...] | None) -> relax.Expr:
    count = int(np.prod(shape_of(value)))
    if count == 1:
        return node.emit(op.reshape(value, ()))
    return value if shape is None else node.emit(op.reshape(value, shape))


def _requantised(
    node: Node, total: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, kind: str
) -> relax.Expr:
    """Return round(total * scale) + zero point, clamped to the type's range."""
    limits = np.iinfo(kind)
    scaled = node.emit(op.multiply(node.emit(op.astype(total, "float32")), scale))
    rounded = node.emit(op.round(scaled))
    if zero is not None:
        offset = node.emit(op.reshape(node.emit(op.astype(zero, "float32")), ()))
        rounded = node.emit(op.add(rounded, offset))
    return op.astype(node.emit(op.clip(rounded, limits.min, limits.max)), kind)


def _factor(node: Node, first: relax.Expr, second: relax.Expr, result: relax.Expr) -> relax.Expr:
    held = [
        x if dtype_of(x) == "float32" else node.emit(op.astype(x, "float32"))
        for x in (first, second, result)
    ]
    return node.emit(op.divide(node.emit(op.multiply(held[0], held[1])), held[2]))


def _q_linear_mat_mul(node: Node) -> relax.Expr:
    left, right, zero = node.input(0), node.input(3), node.given(7)
    rows, columns = (shape_of(left)[-2], 1), (1, shape_of(right)[-1])
    product = op.matmul(
        _centred(node, left, node.given(2), rows), _centred(node, right, node.given(5), columns)
    )
    factor = _factor(
        node,
        _placed(node, node.input(1), rows),
        _placed(node, node.input(4), columns),
        _placed(node, node.input(6), rows),
    )
    kind = dtype_of(left) if zero is None else dtype_of(zero)
    return _requantised(node, node.emit(product), factor, zero, kind)


def _mat_mul_integer(node: Node) -> relax.Expr:
    left, right = node.input(0), node.input(1)
    rank = len(shape_of(left))
    rows = (shape_of(left)[-2], 1) if rank > 1 else None
    return op.matmul(
        _centred(node, left, node.given(2), rows),
        _centred(node, right, node.given(3), (1, shape_of(right)[-1])),
    )


def _convolution(node: Node, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    """Convert with TVM's converter, which handles padding and strides."""
    convert = onnx_frontend._get_convert_map()["Conv"].get_converter(node.opset)
    inputs = onnx_frontend.onnx_input([data, weight])
    return node.emit(convert(node.builder, inputs, dict(node.attributes), [{}, {}]))


def _conv_integer(node: Node) -> relax.Expr:
    weight = node.input(1)
    return _convolution(
        node,
        _centred(node, node.input(0), node.given(2)),
        _centred(node, weight, node.given(3), _by_output(weight)),
    )


def _by_output(weight: relax.Expr) -> tuple[int, ...]:
    shape = shape_of(weight)
    return (shape[0], *[1] * (len(shape) - 1))


def _q_linear_conv(node: Node) -> relax.Expr:
    data, weight = node.input(0), node.input(3)
    total = _convolution(
        node,
        _centred(node, data, node.given(2)),
        _centred(node, weight, node.given(5), _by_output(weight)),
    )
    channels = (shape_of(weight)[0], *[1] * (len(shape_of(weight)) - 2))
    bias = node.given(8)
    if bias is not None:
        total = node.emit(op.add(total, node.emit(op.reshape(bias, channels))))
    factor = _factor(
        node,
        _placed(node, node.input(1), None),
        _placed(node, node.input(4), channels),
        _placed(node, node.input(6), None),
    )
    zero = node.given(7)
    kind = dtype_of(data) if zero is None else dtype_of(zero)
    return _requantised(node, total, factor, zero, kind)


CONVERTERS: dict[str, Converter] = {
    "ConvInteger": _conv_integer,
    "MatMulInteger": _mat_mul_integer,
    "QLinearConv": _q_linear_conv,
    "QLinearMatMul": _q_linear_mat_mul,
}
