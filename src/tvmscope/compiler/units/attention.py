"""Finds attention in a graph: softmax(scale * q k^T + mask) v, with casts and guards around it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.units.found import Chain, Found, Operand
from tvmscope.compiler.units.graph import Graph, constant, dtype_of, name_of, scalar, shape_of
from tvmscope.compiler.units.views import Strided, trace
from tvmscope.cuda.units import Attention, Heads


@dataclass(frozen=True, kw_only=True)
class _Scores:
    product: relax.Call
    mask: relax.Expr | None
    scale: float
    shape: tuple[int, ...]


def match(call: relax.Call, chain: Chain) -> Found | None:
    """Return the attention whose second product is `call`."""
    graph, dtype = chain.graph, dtype_of(call)
    scores = _scores(graph, call.args[0])
    if scores is None or dtype_of(call.args[1]) != dtype:
        return None
    batch, heads, queries, keys = scores.shape
    dim, value_dim = shape_of(scores.product.args[0])[-1], shape_of(call)[-1]
    if prod(shape_of(call)) != batch * heads * queries * value_dim:
        return None
    views = (
        _view(graph, scores.product.args[0], (batch, heads, queries, dim), dtype),
        _view(graph, scores.product.args[1], (batch, heads, dim, keys), dtype),
        _view(graph, call.args[1], (batch, heads, keys, value_dim), dtype),
    )
    if any(view is None for view in views):
        return None
    q, k, v = (view for view in views if view is not None)
    if q.strides[3] != 1 or k.strides[2] != 1 or v.strides[3] != 1 or v.scale != 1.0:
        return None
    mask = _mask(scores, (batch, heads, queries, keys))
    if scores.mask is not None and mask is None:
        return None
    unit = Attention(
        dtype=dtype,  # type: ignore[arg-type]  # checked by the unit
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        dim=dim,
        value_dim=None if value_dim == dim else value_dim,
        scale=scores.scale * q.scale * k.scale,
        q=_heads(q, 2),
        k=_heads(k, 3),
        v=_heads(v, 2),
        mask=mask,
        math="tensor" if dtype != "float32" else "tf32x3",
    )
    operands: dict[str, Operand] = {"query": q.base, "key": k.base, "value": v.base}
    if scores.mask is not None:
        operands["mask"] = relax.op.astype(scores.mask, dtype)
    return Found(
        unit=unit,
        operands=operands,
        last=chain.last,
        replaced=chain.vars,
        written=(batch, queries, heads, value_dim),
        permuted=(0, 2, 1, 3),
    )


def _view(graph: Graph, value: relax.Expr, shape: tuple[int, ...], dtype: str) -> Strided | None:
    return trace(graph, value, shape, dtype=dtype, scaled=True)


def _heads(view: Strided, row: int) -> Heads:
    return Heads(
        batch=view.strides[0], head=view.strides[1], row=view.strides[row], offset=view.offset
    )


def _through(graph: Graph, value: relax.Expr, *names: str) -> relax.Expr:
    """Return the value before reshapes that keep the last two dimensions, and before casts."""
    while (call := graph.call(value, "reshape", "astype", *names)) is not None:
        before, after = shape_of(call.args[0]), shape_of(call)
        if name_of(call) == "reshape" and before[-2:] != after[-2:]:
            return value
        value = call.args[0]
    return value


def _scores(graph: Graph, weights: relax.Expr) -> _Scores | None:
    softmax = _softmax(graph, _through(graph, weights))
    if softmax is None:
        return None
    shape = shape_of(softmax)
    if int(softmax.attrs.axis) not in (-1, len(shape) - 1) or len(shape) not in (3, 4):
        return None
    value, mask, scale = softmax.args[0], None, 1.0
    while True:
        value = _through(graph, value)
        call = graph.call(value)
        if call is None:
            return None
        factor = _factor(call)
        if name_of(call) == "matmul":
            break
        if factor is not None:
            scale *= factor
            value = call.args[0] if scalar(call.args[0]) is None else call.args[1]
        elif name_of(call) == "add" and mask is None and scale == 1.0:
            left, right = call.args
            value, mask = (left, right) if shape_of(left) == shape_of(call) else (right, left)
            if constant(value) is not None:
                return None
        else:
            return None
    if len(shape) == 3:
        shape = (1, *shape)
    return _Scores(product=call, mask=mask, scale=scale, shape=shape)


def _factor(call: relax.Call) -> float | None:
    if name_of(call) == "multiply":
        left, right = (scalar(a) for a in call.args)
        return right if left is None else left
    if name_of(call) == "divide":
        divisor = scalar(call.args[1])
        return 1 / divisor if divisor else None
    return None


def _softmax(graph: Graph, value: relax.Expr) -> relax.Call | None:
    """Return a softmax, bare or in PyTorch's guard, which zeroes rows of -inf, as kernels do."""
    call = graph.call(value, "nn.softmax")
    if call is not None:
        return call
    where = graph.call(value, "where")
    zero = constant(where.args[1]) if where is not None else None
    if where is None or zero is None or np.any(zero):
        return None
    softmax = graph.call(where.args[2], "nn.softmax")
    if softmax is None or not _asks_for_empty_rows(graph, where.args[0], softmax.args[0]):
        return None
    return softmax


def _asks_for_empty_rows(graph: Graph, value: relax.Expr, scores: relax.Expr) -> bool:
    """Whether the value is not any(not scores == -inf), as PyTorch writes it."""
    for names in (("logical_not",), ("astype",), ("max",), ("astype",), ("logical_not",)):
        call = graph.call(value, *names)
        if call is None:
            return False
        value = call.args[0]
    equal = graph.call(value, "equal")
    return equal is not None and equal.args[0] == scores and scalar(equal.args[1]) == -np.inf


def _mask(scores: _Scores, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Return strides of the mask over batch, heads and queries; None if it is not over the keys."""
    if scores.mask is None:
        return None
    given = shape_of(scores.mask)
    given = (1,) * (4 - len(given)) + given
    if len(given) != 4 or given[3] != shape[3]:
        return None
    strides, step = [], given[3]
    for own, full in zip(reversed(given[:3]), reversed(shape[:3]), strict=True):
        if own not in (1, full):
            return None
        strides.append(0 if own == 1 else step)
        step *= own
    head_first = tuple(reversed(strides))
    return head_first[0], head_first[1], head_first[2]
