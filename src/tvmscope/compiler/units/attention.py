"""Finds attention in a graph: softmax(scale * q k^T + mask) v, with casts and guards around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.units.found import Chain, Found, Operand
from tvmscope.compiler.units.graph import (
    Array,
    Graph,
    constant,
    dtype_of,
    name_of,
    scalar,
    shape_of,
)
from tvmscope.compiler.units.masks import Shape, Step, join, step_of
from tvmscope.compiler.units.views import Strided, dense, trace
from tvmscope.cuda.units import Attention, Heads


@dataclass(frozen=True, kw_only=True)
class _Scores:
    product: relax.Call
    masks: tuple[Step, ...]
    scale: float
    scales: Array | None
    """Further ones, one for each head."""
    shape: Shape


def match(call: relax.Call, chain: Chain) -> Found | None:
    """Return the attention whose second product is `call`."""
    graph, dtype = chain.graph, dtype_of(call)
    scores = _scores(graph, call.args[0])
    if scores is None or dtype_of(call.args[1]) != dtype:
        return None
    batch, heads, queries, _ = scores.shape
    dim, value_dim = shape_of(scores.product.args[0])[-1], shape_of(call)[-1]
    if prod(shape_of(call)) != batch * heads * queries * value_dim:
        return None
    views = _views(graph, scores, call.args[1], dtype)
    mask = join(graph, scores.masks, scores.shape, dtype)
    if views is None or mask is None:
        return None
    (q, k, v), shared = views
    queries_scaled = None
    if scores.scales is not None:
        q, queries_scaled = _scaled(scores, scores.scales, dtype)
    unit = Attention(
        dtype=dtype,  # type: ignore[arg-type]  # checked by the unit
        batch=batch,
        heads=heads,
        queries=queries,
        keys=mask.keys,
        dim=dim,
        value_dim=None if value_dim == dim else value_dim,
        scale=scores.scale * q.scale * k.scale,
        causal=mask.causal,
        q=_heads(q, 2),
        k=_heads(k, 3),
        v=_heads(v, 2),
        shared=shared,
        mask=mask.strides,
        mask_batches=mask.batches,
        math="tensor" if dtype != "float32" else "tf32x3",
    )
    operands: dict[str, Operand] = {
        role: view.base if dtype_of(view.base) == dtype else relax.op.astype(view.base, dtype)
        for role, view in zip(("query", "key", "value"), (q, k, v), strict=True)
    }
    if queries_scaled is not None:
        operands["query"] = queries_scaled
    if mask.operand is not None:
        operands["mask"] = mask.operand
    moved = _is_moved(graph, chain.last)
    if not moved:
        rows = Heads(batch=heads * queries * value_dim, head=queries * value_dim, row=value_dim)
        unit = replace(unit, y=rows)
    return Found(
        unit=unit,
        operands=operands,
        last=chain.last,
        replaced=chain.vars,
        written=(batch, queries, heads, value_dim) if moved else (batch, heads, queries, value_dim),
        permuted=(0, 2, 1, 3) if moved else None,
    )


def _is_moved(graph: Graph, value: relax.Var) -> bool:
    """Whether the program brings the rows of all heads together, as a kernel can write them."""
    reader = graph.only_reader(value)
    while reader is not None and graph.call(reader, "reshape", "astype") is not None:
        reader = graph.only_reader(reader)
    return reader is not None and graph.call(reader, "permute_dims") is not None


def _views(
    graph: Graph, scores: _Scores, values: relax.Expr, dtype: str
) -> tuple[tuple[Strided, Strided, Strided], int] | None:
    """Return query, key and value, and how many heads share a key and a value: of narrow values
    where kernels can read those in place, else of wider ones, each of which has to be cast
    first."""
    heads = scores.shape[1]
    groups = [n for n in range(heads, 0, -1) if heads % n == 0]
    for wider, shared in product((False, True), groups):
        read = partial(_read, graph, scores.shape, dtype, wider)
        q, k = read(scores.product.args[0], 1), read(scores.product.args[1], shared)
        v = read(values, shared)
        if q is not None and k is not None and v is not None and _rows_are_dense(q, k, v):
            return (q, k, v), shared
    return None


def _read(
    graph: Graph, scores: Shape, dtype: str, wider: bool, value: relax.Expr, shared: int
) -> Strided | None:
    """Return a value as [batch, heads, ...]; as one head of every `shared`, if these are copies."""
    batch, heads, inner = *scores[:2], shape_of(value)[-2:]
    shape = (batch, heads // shared, shared, *inner) if shared > 1 else (batch, heads, *inner)
    view = trace(graph, value, shape, dtype=dtype, wider=wider, scaled=True)
    if view is None or shared == 1:
        return view
    own = (0, 1, 3, 4)
    return (
        replace(
            view,
            shape=tuple(view.shape[i] for i in own),
            strides=tuple(view.strides[i] for i in own),
        )
        if view.strides[2] == 0
        else None
    )


def _rows_are_dense(q: Strided, k: Strided, v: Strided) -> bool:
    dense = q.strides[3] == 1 and k.strides[2] == 1 and v.strides[3] == 1
    return dense and v.scale == 1.0


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
    if int(softmax.attrs.axis) not in (-1, len(shape) - 1) or len(shape) < 3:
        return None
    *outer, heads, queries, keys = shape
    value, masks, scale, scales = softmax.args[0], [], 1.0, None
    is_product = partial(_is_product, graph)
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
            value = _multiplied(call)
        elif (scaled := _per_head(call, heads)) is not None and scales is None:
            value, scales = scaled
        elif (masked := step_of(call, is_product)) is not None and scale == 1.0 and scales is None:
            value = masked[0]
            masks.append(masked[1])
        else:
            return None
    return _Scores(
        product=call,
        masks=tuple(masks),
        scale=scale,
        scales=scales,
        shape=(prod(outer), heads, queries, keys),
    )


def _factor(call: relax.Call) -> float | None:
    if name_of(call) == "multiply":
        left, right = (scalar(a) for a in call.args)
        return right if left is None else left
    if name_of(call) == "divide":
        divisor = scalar(call.args[1])
        return 1 / divisor if divisor else None
    return None


def _multiplied(call: relax.Call) -> relax.Expr:
    """Return the value that a factor multiplies or divides."""
    found: relax.Expr = call.args[0] if scalar(call.args[0]) is None else call.args[1]
    return found


def _is_product(graph: Graph, value: relax.Expr) -> bool:
    """Whether a value is a product of matrices, perhaps times a number."""
    call = graph.call(_through(graph, value))
    while call is not None and _factor(call) is not None:
        call = graph.call(_through(graph, _multiplied(call)))
    return call is not None and name_of(call) == "matmul"


def _per_head(call: relax.Call, heads: int) -> tuple[relax.Expr, Array] | None:
    """Return what a call multiplies by one constant for each head, and these."""
    if name_of(call) != "multiply":
        return None
    for data, other in (call.args, reversed(call.args)):
        array = constant(other)
        if array is not None and array.size == heads and array.shape[-3:] == (heads, 1, 1):
            return (data, array.reshape(-1)) if shape_of(data) == shape_of(call) else None
    return None


def _scaled(scores: _Scores, scales: Array, dtype: str) -> tuple[Strided, relax.Expr]:
    """Return queries times a factor for each head: their place, and their values. The kernel
    multiplies by the largest factor, in float32; the others are at most 1 of it."""
    batch, heads, queries, _ = scores.shape
    value = scores.product.args[0]
    shape = (batch, heads, queries, shape_of(value)[-1])
    largest = float(np.abs(scales).max()) or 1.0
    factors = relax.const((scales / largest).reshape(heads, 1, 1).astype(np.float32), dtype)
    narrow = relax.op.astype(relax.op.reshape(value, shape), dtype)
    place = Strided(base=value, shape=shape, strides=dense(shape), scale=largest)
    return place, relax.op.multiply(narrow, factors)


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
