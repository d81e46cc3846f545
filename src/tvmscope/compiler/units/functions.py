"""Recognises an activation by its values: models write one in many ways.

    x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x ** 3)))    ->  gelu_tanh
    x * clip(x + 3, 0, 6) / 6                                  ->  hardswish

Operators that read one value and numbers are a function of that value. It is computed for a range
of arguments and compared with the activations that kernels have. The first match counts: none of
the activations is the beginning of another, and what follows it is not a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import get_args

import numpy as np
from tvm import relax

from tvmscope.compiler.units.graph import Array, Graph, dtype_of, name_of, scalar, shape_of
from tvmscope.cuda.reference import activate, erf
from tvmscope.cuda.units import Activation, Dtype

Function = Callable[..., Array]
_MOST_OPERATORS = 16
_LARGE = np.array([60.0, 1e3, 6e4, 3e38, np.inf])
"""A guard against infinities may be in front of an activation."""
_NEAR = np.linspace(-12.05, 12.05, 242)
"""Not where an activation has a corner, because a model's numbers are rounded."""
_ARGUMENTS = np.concatenate([_NEAR, -_LARGE, _LARGE, [0.0, -1e-3, 1e-3]])
_TOLERANCE = {"float32": 2e-6, "float16": 6e-4, "bfloat16": 3e-3}
"""Of a value; numbers of the graph are rounded to the type."""
_ZERO = 1e-6
"""What may stand for 0: a model may divide by the activation and a small number."""
_FLOATS = get_args(Dtype)

_OPERATORS: Mapping[str, Function] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clip": np.clip,
    "negative": np.negative,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "abs": np.abs,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "where": np.where,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": lambda x: activate(x, "sigmoid"),
    "nn.relu": lambda x: activate(x, "relu"),
    "nn.relu6": lambda x: activate(x, "relu6"),
    "astype": lambda x: x,
}
_ACTIVATIONS: tuple[Activation, ...] = (
    "silu", "hardswish", "gelu", "gelu_tanh", "quick_gelu", "elu", "selu", "softplus", "mish",
    "softsign", "relu_squared",
)  # fmt: skip


def activation_after(
    graph: Graph, var: relax.Var, stored: Set[relax.Var]
) -> tuple[Activation, list[relax.Var]] | None:
    """Return the activation that is computed from `var` and alone reads it, and its values in their
    order, of which only the last may be `stored`."""
    values, region = {var: _ARGUMENTS}, [var]
    waiting = _readers(graph, var)
    with np.errstate(all="ignore"):  # exp(1000)
        while waiting and len(region) <= _MOST_OPERATORS:
            reader = min(waiting, key=lambda v: graph.order[v])
            waiting.discard(reader)
            if (computed := _computed(graph, reader, values)) is None:
                continue
            values[reader] = computed
            region.append(reader)
            if (
                computed.dtype != bool
                and _is_closed(graph, region)
                and (kind := _named(computed, dtype_of(var)))
            ):
                return kind, region[1:]
            if reader in stored:
                return None
            waiting |= _readers(graph, reader)
    return None


def _readers(graph: Graph, var: relax.Var) -> set[relax.Var]:
    return {reader for reader in graph.readers[var] if reader is not None}


def _computed(graph: Graph, reader: relax.Var, values: Mapping[relax.Var, Array]) -> Array | None:
    """Return the values of an operator over known ones and numbers."""
    call = graph.call(reader)
    if call is not None and name_of(call) == "reshape" and shape_of(reader):
        source = call.args[0]  # what moves no data, and keeps the last axis
        known = values.get(source) if isinstance(source, relax.Var) else None
        return known if shape_of(source)[-1:] == shape_of(reader)[-1:] else None
    function = _OPERATORS.get(name_of(call)) if call is not None else None
    if call is None or function is None or dtype_of(reader) not in (*_FLOATS, "bool"):
        return None
    given: list[Array | float | None] = []
    for arg in call.args:
        if isinstance(arg, relax.Var):
            same = arg in values and shape_of(arg) == shape_of(reader)
            given.append(values[arg] if same else None)
        else:
            given.append(scalar(arg))
    if any(g is None for g in given) or all(not isinstance(g, np.ndarray) for g in given):
        return None
    return function(*given)


def _is_closed(graph: Graph, region: list[relax.Var]) -> bool:
    """Whether nothing else reads the values before the last."""
    inside = set(region)
    return all(set(graph.readers[v]) <= inside for v in region[:-1])


def _named(values: Array, dtype: str) -> Activation | None:
    """Return the activation that has such values."""
    off: dict[Activation, float] = {}
    for kind in _ACTIVATIONS:
        wanted = activate(_ARGUMENTS, kind)
        same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
        size = np.where(np.isfinite(wanted), np.maximum(1, np.abs(wanted)), 1)
        error = np.where(same, 0, np.abs(values - wanted)) / size
        if np.all(error[wanted == 0] <= _ZERO) and not np.any(np.isnan(error)):
            off[kind] = float(np.max(error))
    best = min(off, key=lambda kind: off[kind], default=None)
    return best if best is not None and off[best] <= _TOLERANCE[dtype] else None
