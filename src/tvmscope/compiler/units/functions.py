"""Recognises an activation by its values: models write one in many ways.

    x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x ** 3)))    ->  gelu_tanh
    x * clip(x + 3, 0, 6) / 6                                  ->  hardswish

Operators that read one value and numbers are a function of that value. It is computed for a range
of arguments and compared with the activations that kernels have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax

from tvmscope.compiler.units.graph import Array, Graph, dtype_of, name_of, scalar, shape_of
from tvmscope.cuda.units import Activation

Function = Callable[..., Array]
_MOST_OPERATORS = 16
_ARGUMENTS = np.concatenate([np.linspace(-12, 12, 241), [-1e3, -60.0, -1e-3, 1e-3, 60.0, 1e3]])
_TOLERANCE = {"float32": 2e-6, "bfloat16": 8e-3}
"""Of a value; numbers of the graph are rounded to the type."""
_HALF_TOLERANCE = 1e-3
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


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
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.relu6": lambda x: np.clip(x, 0, 6),
    "astype": lambda x: x,
}
_ACTIVATIONS: Mapping[Activation, Function] = {
    "silu": lambda x: x * _sigmoid(x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def activation_after(graph: Graph, var: relax.Var) -> tuple[Activation, list[relax.Var]] | None:
    """Return the longest activation that is computed from `var` and alone reads it, and its values
    in their order."""
    values, region = {var: _ARGUMENTS}, [var]
    found: tuple[Activation, list[relax.Var]] | None = None
    waiting = _readers(graph, var)
    with np.errstate(all="ignore"):  # exp(1000)
        while waiting and len(region) <= _MOST_OPERATORS:
            reader = min(waiting, key=lambda v: graph.order[v])
            waiting.discard(reader)
            if (computed := _computed(graph, reader, values)) is None:
                continue
            values[reader] = computed
            region.append(reader)
            waiting |= _readers(graph, reader)
            if _is_closed(graph, region) and (kind := _named(computed, dtype_of(var))):
                found = kind, region[1:]
    return found


def _readers(graph: Graph, var: relax.Var) -> set[relax.Var]:
    return {reader for reader in graph.readers[var] if reader is not None}


def _computed(graph: Graph, reader: relax.Var, values: Mapping[relax.Var, Array]) -> Array | None:
    """Return the values of an operator over known ones and numbers."""
    call = graph.call(reader)
    function = _OPERATORS.get(name_of(call)) if call is not None else None
    if call is None or function is None:
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
    for kind, function in _ACTIVATIONS.items():
        wanted = function(_ARGUMENTS)
        off[kind] = float(np.max(np.abs(values - wanted) / np.maximum(1, np.abs(wanted))))
    best = min(off, key=lambda kind: off[kind])
    return best if off[best] <= _TOLERANCE.get(dtype, _HALF_TOLERANCE) else None
