"""RNN, GRU and LSTM: each direction of each layer is one product and one kernel with the steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.compiler.kernels.recurrence import GATES, Activation, Layer, recurrence
from tvmscope.messages import msg

_ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}
"""PyTorch's gates in the order of the kernel: a GRU's reset comes first there, a cell third."""


def _number(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def _sigmoid(x: tirx.Expr) -> tirx.Expr:
    return _number(1) / (_number(1) + tirx.exp(-x))


def _relu(x: tirx.Expr) -> tirx.Expr:
    return tirx.max(x, _number(0))


_ACTIVATIONS: dict[str, tuple[Activation, ...]] = {
    "rnn_tanh.input": (tirx.tanh,),
    "rnn_relu.input": (_relu,),
    "gru.input": (_sigmoid, tirx.tanh),
    "lstm.input": (_sigmoid, tirx.tanh, tirx.tanh),
}
KINDS = {"rnn_tanh.input": "RNN", "rnn_relu.input": "RNN", "gru.input": "GRU", "lstm.input": "LSTM"}
"""Kinds of layers by the operator's name."""


class _Stack:
    """All layers of an operator, in float32."""

    def __init__(self, builder: relax.BlockBuilder, operator: str, has_biases: bool) -> None:
        self.builder = builder
        self.operator, self.kind = operator, KINDS[operator]
        self.has_biases = has_biases

    def emit(self, value: relax.Expr) -> relax.Expr:
        return self.builder.emit(value)

    def single(self, value: relax.Expr) -> relax.Expr:
        """Return the value in float32."""
        if str(value.ty.dtype) == "float32":
            return value
        return self.emit(op.astype(value, "float32"))

    def turned(self, value: relax.Expr) -> relax.Expr:
        """Reverse the steps."""
        return self.emit(op.flip(value, 0))

    def ordered(self, value: relax.Expr) -> relax.Expr:
        """Return a weight or bias with its gates in the kernel's order."""
        order = _ORDERS[self.kind]
        if len(order) == 1:
            return self.single(value)
        size = int(value.ty.shape[0]) // len(order)
        parts = [
            self.emit(op.strided_slice(value, [0], [gate * size], [(gate + 1) * size]))
            for gate in order
        ]
        return self.single(self.emit(op.concat(parts, 0)))

    def biases(self, weights: Sequence[relax.Expr], hidden: int) -> tuple[relax.Expr, relax.Expr]:
        """Return the bias added to all inputs, and the one that a GRU adds inside its reset."""
        width = GATES[self.kind] * hidden
        zeros = relax.const(np.zeros(3 * hidden, np.float32))
        if not self.has_biases:
            return relax.const(np.zeros(width, np.float32)), zeros
        outer, inner = (self.ordered(value) for value in weights)
        if self.kind != "GRU":
            return self.emit(op.add(outer, inner)), zeros
        inside = self.emit(op.strided_slice(inner, [0], [2 * hidden], [width]))
        kept = np.repeat(np.array([1, 1, 0], np.float32), hidden)
        gates = self.emit(op.multiply(inner, relax.const(kept)))
        return self.emit(op.add(outer, gates)), inside

    def direction(
        self,
        data: relax.Expr,
        starts: Sequence[relax.Expr],
        weights: Sequence[relax.Expr],
        backwards: bool,
    ) -> list[relax.Expr]:
        """Return all states, the last one and the last cell; data are steps x batch x width."""
        steps, batch, width = (int(size) for size in data.ty.shape)
        hidden = int(weights[1].ty.shape[1])
        gates = GATES[self.kind] * hidden
        added, inside = self.biases(weights[2:4], hidden)
        given = self.turned(data) if backwards else data
        flat = self.emit(op.reshape(given, (steps * batch, width)))
        inputs = self.emit(op.permute_dims(self.ordered(weights[0])))
        products = self.emit(op.add(self.emit(op.matmul(flat, inputs)), added))
        layer = Layer(
            kind=self.kind,
            steps=steps,
            batch=batch,
            hidden=hidden,
            activations=_ACTIVATIONS[self.operator],
            linear_before_reset=self.kind == "GRU",
        )
        made = self.builder.emit_te(
            partial(recurrence, layer=layer),
            self.emit(op.reshape(products, (steps, batch, gates))),
            self.emit(op.permute_dims(self.ordered(weights[1]))),
            *starts,
            inside,
            relax.const(np.full(batch, steps, np.int32)),
            primfunc_name_hint=self.kind.lower(),
        )
        states, last, cell = (self.emit(relax.TupleGetItem(made, i)) for i in range(3))
        return [self.turned(states) if backwards else states, last, cell]


def layers(
    builder: relax.BlockBuilder,
    operator: str,
    data: relax.Expr,
    states: Any,
    weights: Sequence[relax.Expr],
    has_biases: bool,
    count: int,
    dropout: float,
    training: bool,
    both_ways: bool,
    batch_first: bool,
) -> relax.Expr:
    """Return an RNN operator's outputs: the last layer's states, and every layer's last ones."""
    stack = _Stack(builder, operator, has_biases)
    dtype, is_lstm = str(data.ty.dtype), stack.kind == "LSTM"
    ways, each = 2 if both_ways else 1, 4 if has_biases else 2
    if training and dropout:
        raise Unsupported(msg("dropout in training mode"))
    if len(weights) != count * ways * each:
        raise Unsupported(msg("a projection of the states"))
    alone = data.ty.ndim == 2
    axes = [0 if batch_first else 1] if alone else []
    data = stack.single(stack.emit(op.expand_dims(data, axes)) if alone else data)
    if batch_first:
        data = stack.emit(op.permute_dims(data, [1, 0, 2]))
    given = [stack.single(state) for state in (states if is_lstm else [states])]
    given = [stack.emit(op.expand_dims(s, 1)) if alone else s for s in given]
    lasts: list[list[relax.Expr]] = [[], []]
    for layer in range(count):
        made = []
        for way in range(ways):
            number = layer * ways + way
            starts = [
                stack.emit(
                    op.squeeze(stack.emit(op.strided_slice(s, [0], [number], [number + 1])), [0])
                )
                for s in given
            ]
            held = weights[number * each : (number + 1) * each]
            made.append(
                stack.direction(data, starts if is_lstm else starts * 2, held, backwards=way == 1)
            )
            for found, last in zip(lasts, made[-1][1:], strict=True):
                found.append(last)
        data = made[0][0] if ways == 1 else stack.emit(op.concat([m[0] for m in made], 2))
    if batch_first:
        data = stack.emit(op.permute_dims(data, [1, 0, 2]))
    ends = [stack.emit(op.stack(found, 0)) for found in lasts[: 2 if is_lstm else 1]]
    results = [data, *ends]
    if alone:
        results = [
            stack.emit(op.squeeze(value, [axes[0] if n == 0 else 1]))
            for n, value in enumerate(results)
        ]
    if dtype != "float32":
        results = [stack.emit(op.astype(value, dtype)) for value in results]
    return stack.emit(relax.Tuple(results))
