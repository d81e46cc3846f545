"""RNN, GRU and LSTM layers as one kernel: a loop over the steps, batch entries in parallel.

    parallel b:  for t:  gates = given[t, b] + state . weight;  state = cell(gates, state)

The products with the inputs need no state: they are one large product before this kernel. A loop
in the kernel keeps the compile time the same for any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from tvmscope.compiler.kernels.loops import Cells, extern, phases
from tvmscope.compiler.kernels.marks import RECURRENCE

Expr = tirx.Expr
Activation = Callable[[Expr], Expr]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One direction of a layer; gates are in ONNX's order."""

    kind: str
    steps: int
    batch: int
    hidden: int
    activations: tuple[Activation, ...]
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def width(self) -> int:
        """The width of all gates together."""
        return GATES[self.kind] * self.hidden

    def cut(self, value: Expr) -> Expr:
        """Clip the value, if there is a clipping range."""
        if self.clip is None:
            return value
        most = tirx.const(self.clip, "float32")
        return tirx.max(tirx.min(value, most), -most)


def recurrence(
    given: te.Tensor,
    weight: te.Tensor,
    start: te.Tensor,
    cell: te.Tensor,
    more: te.Tensor,
    lengths: te.Tensor,
    *,
    layer: Layer,
) -> list[te.Tensor]:
    """Return all states (steps x batch x hidden), the last one, and the last cell.

    `given` is steps x batch x gates, `weight` hidden x gates; `more` are an LSTM's peepholes
    (input, output, forget) or a GRU's bias inside of the reset. States after a row's length are 0.
    """
    shape = (layer.batch, layer.hidden)

    def build(ins: Sequence[tirx.Buffer], outs: Sequence[tirx.Buffer]) -> tirx.Stmt:
        inputs = [T.buffer_proxy(buffer) for buffer in ins]
        results = [T.buffer_proxy(buffer) for buffer in outs]
        return phases([(layer.batch, lambda b: _row(layer, b, inputs, results), False)], gpu=False)

    return extern(
        [(layer.steps, *shape), shape, shape],
        [given, weight, start, cell, more, lengths],
        build,
        ["float32"] * 3,
        RECURRENCE,
    )


@dataclass(frozen=True)
class _Row:
    """The buffers that the steps of one batch entry use."""

    layer: Layer
    weight: Cells
    more: Cells
    state: Cells
    cell: Cells
    gates: Cells
    inner: Cells

    def add_product(self, vector: Cells, target: Cells, first: int, count: int) -> None:
        """Compute target[first:first+count] += vector . weight[:, first:first+count]."""
        width = self.layer.width
        with T.serial(0, self.layer.hidden) as k, T.serial(0, count) as j:
            new = vector[k] * self.weight[k * width + first + j]
            target[first + j] = target[first + j] + new


def _row(layer: Layer, row: Expr, ins: Sequence[Cells], outs: Sequence[Cells]) -> None:
    given, weight, start, cell_start, more, lengths = ins
    states, last, last_cell = outs
    size, width = layer.hidden, layer.width
    held = _Row(layer, weight, more, *(_local(n) for n in (size, size, width, size)))
    with T.serial(0, size) as j:
        held.state[j] = start[row * size + j]
        held.cell[j] = cell_start[row * size + j]
    with T.serial(0, layer.steps) as step:
        at = (step * layer.batch + row) * size
        with T.If(step < lengths[row]):
            with T.Then():
                with T.serial(0, width) as j:
                    held.gates[j] = given[(step * layer.batch + row) * width + j]
                _STEPS[layer.kind](held)
                with T.serial(0, size) as j:
                    states[at + j] = held.state[j]
            with T.Else(), T.serial(0, size) as j:
                states[at + j] = tirx.const(0, "float32")
    with T.serial(0, size) as j:
        last[row * size + j] = held.state[j]
        last_cell[row * size + j] = held.cell[j]


def _local(size: int) -> Cells:
    made: Cells = T.buffer_proxy(T.alloc_buffer((size,), "float32", scope="local"))
    return made


def _rnn(row: _Row) -> None:
    layer = row.layer
    row.add_product(row.state, row.gates, 0, layer.hidden)
    with T.serial(0, layer.hidden) as j:
        row.state[j] = layer.activations[0](layer.cut(row.gates[j]))


def _gru(row: _Row) -> None:
    """Compute update and reset gates, then the new state; the reset may be inside the product."""
    layer, state, gates, inner = row.layer, row.state, row.gates, row.inner
    size = layer.hidden
    f, g = layer.activations
    row.add_product(state, gates, 0, 2 * size)
    with T.serial(0, 2 * size) as j:
        gates[j] = f(layer.cut(gates[j]))
    if layer.linear_before_reset:
        with T.serial(0, size) as j:
            inner[j] = row.more[j]
        with T.serial(0, size) as k, T.serial(0, size) as j:
            inner[j] = inner[j] + state[k] * row.weight[k * layer.width + 2 * size + j]
        with T.serial(0, size) as j:
            gates[2 * size + j] = gates[2 * size + j] + gates[size + j] * inner[j]
    else:
        with T.serial(0, size) as j:
            inner[j] = gates[size + j] * state[j]
        row.add_product(inner, gates, 2 * size, size)
    with T.serial(0, size) as j:
        new = g(layer.cut(gates[2 * size + j]))
        state[j] = (tirx.const(1, "float32") - gates[j]) * new + gates[j] * state[j]


def _lstm(row: _Row) -> None:
    """Compute input, output and forget gates and the new cell, with peepholes into the cell."""
    layer, cell, gates, more = row.layer, row.cell, row.gates, row.more
    size = layer.hidden
    f, g, h = layer.activations
    row.add_product(row.state, gates, 0, 4 * size)
    with T.serial(0, size) as j:
        gates[j] = f(layer.cut(gates[j] + more[j] * cell[j]))
    with T.serial(0, size) as j:
        forget = layer.cut(gates[2 * size + j] + more[2 * size + j] * cell[j])
        gates[2 * size + j] = (
            tirx.const(1, "float32") - gates[j] if layer.input_forget else f(forget)
        )
    with T.serial(0, size) as j:
        new = g(layer.cut(gates[3 * size + j]))
        cell[j] = gates[2 * size + j] * cell[j] + gates[j] * new
    with T.serial(0, size) as j:
        out = f(layer.cut(gates[size + j] + more[size + j] * cell[j]))
        row.state[j] = out * h(cell[j])


_STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
