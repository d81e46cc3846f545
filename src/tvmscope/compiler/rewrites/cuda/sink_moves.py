"""Moves permutations of rows after the operators that treat each row separately, where they cancel
or are read as views.

    matmul(move(x), w)  ->  move(matmul(x, w))          add(move(x), bias)  ->  move(add(x, bias))

A move is a chain of permutations and reshapes that keep the last axis. PyTorch's attention puts the
sequence before the batch, and back: with a batch of one that is a reshape, with more it would be
two copies around every product.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import Rewriter, bound_call, rewrite_calls, static_shape
from tvmscope.compiler.units.graph import constant

_ROWWISE = ("nn.relu", "nn.gelu", "nn.silu", "sigmoid", "tanh", "astype")


@dataclass(frozen=True)
class _Permute:
    axes: tuple[int, ...]

    def of(self, value: relax.Expr) -> relax.Expr:
        return relax.op.permute_dims(value, list(self.axes))


@dataclass(frozen=True)
class _Reshape:
    lead: tuple[int, ...]
    """All but the last axis: rows keep their width, which an operator may have changed."""

    def of(self, value: relax.Expr) -> relax.Expr:
        return relax.op.reshape(value, (*self.lead, (static_shape(value) or ())[-1]))


Move = _Permute | _Reshape


def sink_moves() -> tvm.transform.Pass:
    """Return the pass."""
    unary = {f"relax.{name}": _unary for name in _ROWWISE}
    return rewrite_calls("SinkMoves", {"relax.matmul": _matmul, "relax.add": _add, **unary})


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    weight = constant(call.args[1])
    if weight is None or weight.ndim != 2:
        return None
    return _sunk(rewriter, call, 0)


def _add(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    for at in (0, 1):
        bias = constant(call.args[1 - at])
        same = static_shape(call) == static_shape(call.args[at])  # no axis is added
        if bias is not None and bias.ndim and bias.size == bias.shape[-1] and same:
            return _sunk(rewriter, call, at)
    return None


def _unary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    return _sunk(rewriter, call, 0)


def _sunk(rewriter: Rewriter, call: relax.Call, at: int) -> relax.Expr | None:
    """Return the call on the unmoved value, followed by the moves; None if nothing was moved."""
    base, moves = _moves(rewriter, call.args[at])
    if not any(isinstance(move, _Permute) for move in moves):
        return None
    args = [base if i == at else arg for i, arg in enumerate(call.args)]
    value = rewriter.emit(relax.Call(call.op, args, call.attrs, call.ty_args))
    for move in moves[:-1]:
        value = rewriter.emit(move.of(value))
    return moves[-1].of(value)


def _moves(rewriter: Rewriter, value: relax.Expr) -> tuple[relax.Expr, list[Move]]:
    """Return the origin of the rows, and the moves since then, in order."""
    moves: list[Move] = []
    while (found := _move(rewriter, value)) is not None:
        value, steps = found
        moves[:0] = steps
    return value, moves


def _move(rewriter: Rewriter, value: relax.Expr) -> tuple[relax.Expr, list[Move]] | None:
    """Return the last move of rows, and the moved value."""
    after = static_shape(value)
    if (call := bound_call(rewriter, value, "permute_dims")) is not None and after:
        axes = _axes(call, len(after))
        return (call.args[0], [_Permute(axes)]) if axes[-1] == len(after) - 1 else None
    call = bound_call(rewriter, value, "reshape")
    before = static_shape(call.args[0]) if call is not None else None
    if call is None or not before or not after or len(after) < 2 or len(before) < 2:
        return None
    if before[-1] == after[-1]:
        return call.args[0], [_Reshape(after[:-1])]
    return _gathered(rewriter, call.args[0], before, after)


def _gathered(
    rewriter: Rewriter, value: relax.Expr, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[relax.Expr, list[Move]] | None:
    """Rewrite one permutation that gathers rows of several axes: first gather, then move."""
    call = bound_call(rewriter, value, "permute_dims")
    lead = next((n for n in range(1, len(before)) if prod(before[n:]) == after[-1]), None)
    if call is None or lead is None:
        return None
    axes = _axes(call, len(before))
    moved, row = axes[:lead], axes[lead:]
    kept = tuple(sorted(moved))
    if moved == kept:
        return None
    emit, shape = rewriter.builder_.emit, static_shape(call.args[0]) or ()
    gathered = emit(relax.op.permute_dims(call.args[0], [*kept, *row]))
    rows = emit(relax.op.reshape(gathered, (*(shape[a] for a in kept), after[-1])))
    order = (*(kept.index(a) for a in moved), lead)
    return rows, [_Permute(order), _Reshape(after[:-1])]


def _axes(call: relax.Call, count: int) -> tuple[int, ...]:
    axes = call.attrs.axes
    return tuple(int(a) % count for a in axes) if axes is not None else tuple(range(count))[::-1]
