"""Finds what a convolution's or product's kernel includes after it: bias, residual, activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.units.found import Chain
from tvmscope.compiler.units.functions import activation_after
from tvmscope.compiler.units.graph import (
    Array,
    constant,
    dtype_of,
    name_of,
    scalar,
    shape_of,
)
from tvmscope.cuda.units import Activation, Dtype, Epilogue, Residual

_PLAIN: dict[str, Activation] = {
    "nn.relu": "relu",
    "nn.relu6": "relu6",
    "nn.gelu": "gelu",
    "nn.gelu_tanh": "gelu_tanh",
    "nn.silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
_OUTPUTS: dict[str, Dtype] = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
}


@dataclass(frozen=True, kw_only=True)
class Tail:
    """An epilogue under construction: the values it covers, and its operands."""

    chain: Chain
    dtype: str
    epilogue: Epilogue = field(default_factory=Epilogue)
    bias: Array | None = None
    residual: relax.Expr | None = None

    @property
    def channels(self) -> int:
        """The extent of the last axis, which is also that of a bias."""
        return shape_of(self.chain.vars[0])[-1]


_Kind = Callable[[Tail, relax.Var, relax.Call], Tail | None]
"""Adds one operator, which the last value's only reader calls."""


def follow(chain: Chain, dtype: str) -> Tail:
    """Return the longest epilogue after the only value of `chain`, for a unit of type `dtype`."""
    tail = Tail(chain=chain, dtype=dtype)
    while chain.graph.fused and (longer := _step(tail)) is not None:
        tail = longer
    return _trimmed(tail)


def _step(tail: Tail) -> Tail | None:
    if tail.epilogue.output is not None:
        return None  # nothing may follow a cast
    if tail.epilogue.residual != "factor" and (found := _recognised(tail)) is not None:
        return found
    reader = tail.chain.next()
    call = tail.chain.graph.call(reader) if reader is not None else None
    if reader is None or call is None:
        return None
    kinds: tuple[_Kind, ...] = (_cast, _reshape)
    if tail.epilogue.residual != "factor":
        kinds = (_bias, _residual, _limit, _activation, *kinds)
    for kind in kinds:
        found = kind(tail, reader, call)
        if found is not None:
            return found
    return None


def _other(tail: Tail, call: relax.Call, name: str = "add") -> relax.Expr | None:
    """Return the other operand of a sum, or of another operator."""
    if name_of(call) != name:
        return None
    left, right = call.args
    return right if left == tail.chain.last else left


def _bias(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    other = _other(tail, call)
    array = constant(other) if other is not None else None
    if array is None or tail.epilogue.activation != "none" or tail.residual is not None:
        return None
    if array.size not in (1, tail.channels) or array.size != (array.shape[-1:] or (1,))[0]:
        return None
    if shape_of(reader) != shape_of(tail.chain.last):
        return None
    added = np.broadcast_to(array.astype(np.float32).reshape(-1), (tail.channels,))
    return replace(
        tail,
        chain=tail.chain.then(reader),
        bias=added if tail.bias is None else tail.bias + added,
        epilogue=replace(tail.epilogue, bias=True),
    )


def _residual(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    added, factor = _other(tail, call), _other(tail, call, "multiply")
    other = factor if added is None else added
    if not isinstance(other, relax.Var) or tail.residual is not None:
        return None
    if other == tail.chain.last or shape_of(other) != shape_of(tail.chain.last):
        return None
    if dtype_of(other) != tail.dtype or not shape_of(other):
        return None
    where: Residual = "before" if tail.epilogue.activation == "none" else "after"
    if factor is not None:
        where = "factor"
    return replace(
        tail,
        chain=tail.chain.then(reader),
        residual=other,
        epilogue=replace(tail.epilogue, residual=where),
    )


def _limit(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    """Add a maximum or minimum with a number, or both: a clip, or another one."""
    name, own = name_of(call), call.args[0] == tail.chain.last
    if name == "clip":
        given = [("maximum", scalar(call.args[1])), ("minimum", scalar(call.args[2]))]
    elif name in ("maximum", "minimum"):
        given = [(name, scalar(call.args[1] if own else call.args[0]))]
    else:
        return None
    low, high = _limits(tail.epilogue)
    for side, limit in given:
        if limit is None or low is None or high is None:
            return None
        meet = max if side == "maximum" else min
        low, high = meet(low, limit), meet(high, limit)
    if low is None or high is None:
        return None
    return _activated(tail, *_clip(low, high), reader)


def _limits(epilogue: Epilogue) -> tuple[float | None, float | None]:
    """Return the limits of an activation that is a clip; none for any other."""
    known = {"none": (-math.inf, math.inf), "relu": (0.0, math.inf), "relu6": (0.0, 6.0)}
    if epilogue.residual == "after":  # what follows limits the sum
        return None, None
    if epilogue.activation == "clip":
        return epilogue.parameters[0], epilogue.parameters[1]
    return known.get(epilogue.activation, (None, None))


def _clip(low: float, high: float) -> tuple[Activation, tuple[float, ...]]:
    if low == 0.0 and high in (6.0, math.inf):
        return ("relu6" if high == 6.0 else "relu"), ()
    return "clip", (low, high)


def _activation(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    if tail.epilogue.activation != "none":
        return None
    kind: Activation | None = _PLAIN.get(name_of(call))
    parameters: tuple[float, ...] = ()
    if name_of(call) == "nn.leakyrelu":
        kind, parameters = "leaky_relu", (float(call.attrs.alpha),)
    if kind is None:
        return None
    return _activated(tail, kind, parameters, reader)


def _activated(
    tail: Tail, kind: Activation, parameters: tuple[float, ...], *more: relax.Var
) -> Tail:
    epilogue = replace(tail.epilogue, activation=kind, parameters=parameters)
    return replace(tail, chain=tail.chain.then(*more), epilogue=epilogue)


def _recognised(tail: Tail) -> Tail | None:
    """Add an activation that is written with several operators."""
    graph = tail.chain.graph
    if tail.epilogue.activation != "none" or tail.chain.last in graph.needed:
        return None
    found = activation_after(graph, tail.chain.last, graph.needed | tail.chain.taken)
    if found is None or tail.chain.taken.intersection(found[1]):
        return None
    kind, values = found
    longer = _activated(tail, kind, (), *values)
    if dtype_of(values[-1]) == tail.dtype:
        return longer
    reader = longer.chain.next()  # computed in a wider type, and cast back
    cast = graph.call(reader, "astype") if reader is not None else None
    if reader is not None and cast is not None and dtype_of(reader) == tail.dtype:
        return replace(longer, chain=longer.chain.then(reader))
    output = _OUTPUTS[dtype_of(values[-1])]
    return replace(longer, epilogue=replace(longer.epilogue, output=output))


def _cast(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    if name_of(call) != "astype" or dtype_of(reader) not in _OUTPUTS:
        return None
    if dtype_of(reader) == tail.dtype:
        return replace(tail, chain=tail.chain.then(reader))
    readers = tail.chain.graph.readers[reader]
    if len(readers) > 1 and None not in readers:
        return None  # as of a norm's input: its kernel casts what it reads, and half as many bytes
    output = _OUTPUTS[dtype_of(reader)]
    epilogue = replace(tail.epilogue, output=output)
    return replace(tail, chain=tail.chain.then(reader), epilogue=epilogue)


def _reshape(tail: Tail, reader: relax.Var, call: relax.Call) -> Tail | None:
    """Add a reshape that keeps the channels: it moves no data."""
    shape = shape_of(reader)
    if name_of(call) != "reshape" or not shape or shape[-1] != tail.channels:
        return None
    if prod(shape) != prod(shape_of(tail.chain.last)):
        return None
    return replace(tail, chain=tail.chain.then(reader))


def _trimmed(tail: Tail) -> Tail:
    """Return the epilogue without reshapes at its end: others may need the original shape."""
    keep = list(tail.chain.vars)
    graph = tail.chain.graph
    steps: Callable[[relax.Var], bool] = lambda v: graph.call(v, "reshape") is not None  # noqa: E731
    while len(keep) > 1 and steps(keep[-1]):
        keep.pop()
    return replace(tail, chain=replace(tail.chain, vars=tuple(keep)))
