"""RNN, GRU and LSTM: one product for all inputs, then a kernel with the loop over steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.compiler.kernels.recurrence import GATES, Activation, Layer, recurrence
from tvmscope.messages import msg

Expr = tirx.Expr


def _number(value: float) -> Expr:
    return tirx.const(value, "float32")


def _sigmoid(x: Expr) -> Expr:
    return _number(1) / (_number(1) + tirx.exp(-x))


_ACTIVATIONS: dict[str, Callable[[float, float], Activation]] = {
    "relu": lambda a, b: lambda x: tirx.max(x, _number(0)),
    "tanh": lambda a, b: tirx.tanh,
    "sigmoid": lambda a, b: _sigmoid,
    "affine": lambda a, b: lambda x: x * _number(a) + _number(b),
    "leakyrelu": lambda a, b: lambda x: tirx.if_then_else(x < 0, x * _number(a), x),
    "thresholdedrelu": lambda a, b: lambda x: tirx.if_then_else(x < _number(a), _number(0), x),
    "scaledtanh": lambda a, b: lambda x: _number(a) * tirx.tanh(x * _number(b)),
    "hardsigmoid": lambda a, b: (
        lambda x: tirx.max(_number(0), tirx.min(_number(1), x * _number(a) + _number(b)))
    ),
    "elu": lambda a, b: (
        lambda x: tirx.if_then_else(x < 0, _number(a) * (tirx.exp(x) - _number(1)), x)
    ),
    "softsign": lambda a, b: lambda x: x / (_number(1) + tirx.abs(x)),
    "softplus": lambda a, b: lambda x: tirx.log(_number(1) + tirx.exp(x)),
}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_ALPHAS = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
_BETAS = {"hardsigmoid": 0.5}


def _activations(node: Node, kind: str, direction: int) -> tuple[Activation, ...]:
    count = len(_DEFAULTS[kind])
    names = [
        (n.decode() if isinstance(n, bytes) else str(n)).lower()
        for n in node.get("activations", ()) or _DEFAULTS[kind] * 2
    ]
    alphas, betas = list(node.get("activation_alpha", ())), list(node.get("activation_beta", ()))
    made = []
    for name in names[: (direction + 1) * count]:  # parameters are listed only where needed
        alpha = alphas.pop(0) if alphas and name in (*_ALPHAS, "affine", "scaledtanh") else None
        beta = betas.pop(0) if betas and name in (*_BETAS, "affine", "scaledtanh") else None
        if name not in _ACTIVATIONS:
            raise Unsupported(msg("activation {name}", name=name))
        made.append(
            _ACTIVATIONS[name](
                _ALPHAS.get(name, 1.0) if alpha is None else alpha,
                _BETAS.get(name, 0.0) if beta is None else beta,
            )
        )
    return tuple(made[direction * count :])


def _layer(kind: str) -> Converter:
    def convert(node: Node) -> relax.Expr:
        data = node.input(0)
        if dtype_of(data) != "float32":
            raise Unsupported(msg("{operator} in {dtype}", operator=kind, dtype=dtype_of(data)))
        by_batch = bool(node.get("layout", 0))
        if by_batch:
            data = node.emit(op.permute_dims(data, [1, 0, 2]))
        how = node.text("direction", "forward")
        directions = (False, True) if how == "bidirectional" else (how == "reverse",)
        results = [
            _direction(node, kind, data, number, backwards, by_batch)
            for number, backwards in enumerate(directions)
        ]
        joined = [
            node.emit(op.concat([node.emit(op.expand_dims(r[part], axis)) for r in results], axis))
            for part, axis in ((0, 1), (1, 0), (2, 0))
        ]
        if by_batch:
            orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
            joined = [
                node.emit(op.permute_dims(x, order))
                for x, order in zip(joined, orders, strict=True)
            ]
        return relax.Tuple(joined[: max(node.results, 1)])

    return convert


def _direction(
    node: Node, kind: str, data: relax.Expr, number: int, backwards: bool, by_batch: bool
) -> list[relax.Expr]:
    """Return all states, the last one and the last cell, without the axis of directions."""
    steps, batch, width = shape_of(data)
    weight, inner = (_of(node, node.input(i), number) for i in (1, 2))
    hidden, gates = shape_of(inner)[1], GATES[kind]
    bias = node.given(3)
    linear = kind == "GRU" and bool(node.get("linear_before_reset", 0))
    zeros = const(np.zeros(3 * hidden), "float32")
    added, more = _biases(node, bias, number, gates * hidden, linear) or (None, zeros)
    lengths = node.given(4)
    if lengths is None:
        lengths = const(np.full(batch, steps), "int32")
    if backwards:
        data = _turned(node, data, lengths)
    flat = node.emit(op.reshape(data, (steps * batch, width)))
    given = node.emit(op.matmul(flat, node.emit(op.permute_dims(weight))))
    if added is not None:
        given = node.emit(op.add(given, added))
    if kind == "LSTM" and node.given(7) is not None:
        more = _of(node, node.input(7), number)
    starts = [_start(node, i, number, (batch, hidden), by_batch) for i in (5, 6)]
    clip = node.get("clip", None)
    layer = Layer(
        kind=kind,
        steps=steps,
        batch=batch,
        hidden=hidden,
        activations=_activations(node, kind, number),
        clip=None if clip is None else float(clip),
        input_forget=bool(node.get("input_forget", 0)),
        linear_before_reset=linear,
    )
    made = node.builder.emit_te(
        partial(recurrence, layer=layer),
        node.emit(op.reshape(given, (steps, batch, gates * hidden))),
        node.emit(op.permute_dims(inner)),
        *starts,
        more,
        lengths,
        primfunc_name_hint=kind.lower(),
    )
    states, last, cell = (node.emit(relax.TupleGetItem(made, i)) for i in range(3))
    return [_turned(node, states, lengths) if backwards else states, last, cell]


def _of(node: Node, value: relax.Expr, number: int) -> relax.Expr:
    """Return one direction's slice."""
    part = node.emit(op.strided_slice(value, [0], [number], [number + 1]))
    return node.emit(op.squeeze(part, [0]))


def _biases(
    node: Node, bias: relax.Expr | None, number: int, width: int, linear: bool
) -> tuple[relax.Expr, relax.Expr] | None:
    """Return the bias added to all inputs, and the one that a GRU adds inside its reset."""
    if bias is None:
        return None
    both = _of(node, bias, number)
    outer, inner = (
        node.emit(op.strided_slice(both, [0], [n * width], [(n + 1) * width])) for n in range(2)
    )
    third = width // 3
    zeros = const(np.zeros(width), "float32")
    if not linear:
        return node.emit(op.add(outer, inner)), zeros
    inside = node.emit(op.strided_slice(inner, [0], [2 * third], [width]))
    kept = np.concatenate([np.ones(2 * third), np.zeros(third)])
    gates = node.emit(op.multiply(inner, const(kept, "float32")))
    return node.emit(op.add(outer, gates)), inside


def _start(
    node: Node, index: int, number: int, shape: tuple[int, int], by_batch: bool
) -> relax.Expr:
    value = node.given(index)
    if value is None:
        return const(np.zeros(shape), "float32")
    if by_batch:
        value = node.emit(op.permute_dims(value, [1, 0, 2]))
    return _of(node, value, number)


def _turned(node: Node, data: relax.Expr, lengths: relax.Expr) -> relax.Expr:
    """Reverse the steps of each row, up to its own length."""
    shape = shape_of(data)
    place = const(np.arange(shape[0])[:, None], "int64")
    count = node.emit(op.expand_dims(node.emit(op.astype(lengths, "int64")), 0))
    back = node.emit(op.subtract(node.emit(op.subtract(count, const(1, "int64"))), place))
    chosen = node.emit(op.where(node.emit(op.less(place, count)), back, place))
    index = node.emit(op.broadcast_to(node.emit(op.expand_dims(chosen, 2)), shape))
    return node.emit(op.gather_elements(data, index, 0))


CONVERTERS: dict[str, Converter] = {kind: _layer(kind) for kind in GATES}
