"""Finds what is computed row by row: softmax, layer norm, RMS norm and rows of length one, with a
sum before them."""

from __future__ import annotations

from dataclasses import replace
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
    variables,
)
from tvmscope.compiler.units.row_views import (
    DTYPES,
    has_all_rows,
    order_of,
    rows_of,
    same_place,
    sources,
    uncast,
)
from tvmscope.compiler.units.views import Strided, trace
from tvmscope.cuda.units import Dtype, Form, Norm, Softmax


def softmax(call: relax.Call, chain: Chain) -> Found | None:
    """Match a softmax or its logarithm over the last axis, with a factor and casts around it."""
    shape = shape_of(call)
    if not shape or int(call.attrs.axis) % len(shape) != len(shape) - 1:
        return None
    found = next(sources(chain.graph, call.args[0], scaled=True), None)
    if found is None:
        return None
    dtype, rows = found
    chain = _with_cast(chain)
    unit = Softmax(
        dtype=dtype,
        rows=prod(shape[:-1]),
        columns=shape[-1],
        scale=rows.scale,
        log=name_of(call) == "nn.log_softmax",
        output=_output(chain, dtype),
    )
    return Found(unit=unit, operands={"input": rows.base}, last=chain.last, replaced=chain.vars)


def layer_norm(call: relax.Call, chain: Chain) -> Found | None:
    """Match a layer norm over the last axis, with the sum before it if that is a kernel."""
    data = call.args[0]
    shape, dtype = shape_of(data), dtype_of(data)
    axes = [int(a) % len(shape) for a in call.attrs.axes] if shape else []
    scale, bias = (constant(a) for a in call.args[1:3])
    if axes != [len(shape) - 1] or dtype not in DTYPES or scale is None or bias is None:
        return None
    unit = Norm(
        dtype=dtype,
        rows=prod(shape[:-1]),
        columns=shape[-1],
        epsilon=float(call.attrs.epsilon),
    )
    weights = {"scale": scale.astype(np.float32), "bias": bias.astype(np.float32)}
    view = trace(chain.graph, data)
    inside = view is not None and not has_all_rows(view) and rows_of(view) is not None
    return _placed(unit, view if view and inside else Strided.of(data), weights, chain)


def root(call: relax.Call, chain: Chain) -> Found | None:
    """Match what divides rows by a root, which `call` computes: an RMS norm, or rows of length
    one."""
    return rms_norm(call, chain) or length_norm(call, chain)


def rms_norm(call: relax.Call, chain: Chain) -> Found | None:
    """Match x * rsqrt(mean(x * x) + epsilon) over the last axis, with a weight, a bias and casts;
    `call` is the root, which may also divide. If x is y - mean(y), it is the layer norm of y."""
    graph = chain.graph
    squared = _mean_square(graph, call.args[0])
    normed = _normed(chain, divides=name_of(call) != "rsqrt") if squared is not None else None
    if squared is None or normed is None:
        return None
    chain, value = normed
    found = _same_rows(graph, squared[0], value, shape_of(chain.last))
    if found is None:
        return None
    dtype, rows = found
    centred = _centred(graph, rows.base)
    if centred is not None:
        dtype, rows = centred
    form: Form = "rms" if centred is None else "layer"
    return _weighted(_norm(dtype, form, squared[1], chain), rows, chain)


def length_norm(call: relax.Call, chain: Chain) -> Found | None:
    """Match x / max(sqrt(sum(x * x)), epsilon) over the last axis, as PyTorch's `normalize`;
    `call` is the root."""
    graph = chain.graph
    values = _sum_square(graph, call.args[0]) if _is_root(call) else None
    if values is None:
        return None
    chain, epsilon = _at_least(chain)
    normed = _normed(chain, divides=True)
    if normed is None:
        return None
    chain, value = normed
    found = _same_rows(graph, values, value, shape_of(chain.last))
    if found is None:
        return None
    dtype, rows = found
    return _weighted(_norm(dtype, "length", epsilon, chain), rows, chain)


def _norm(dtype: Dtype, form: Form, epsilon: float, chain: Chain) -> Norm:
    *rows, columns = shape_of(chain.last)
    return Norm(dtype=dtype, form=form, epsilon=epsilon, rows=prod(rows), columns=columns)


def _same_rows(
    graph: Graph, squared: relax.Expr, value: relax.Expr, shape: tuple[int, ...]
) -> tuple[Dtype, Strided] | None:
    """Return the earliest value that both what is squared and what is divided are made of."""
    squares = shape_of(squared)
    of_squares = dict(sources(graph, squared, moved=True))
    found = sources(graph, value, moved=True)
    if shape[-1:] != squares[-1:] or prod(shape) != prod(squares):
        return None
    return next(
        ((d, s) for d, s in found if d in of_squares and same_place(s, of_squares[d])), None
    )


def _weighted(unit: Norm, rows: Strided, chain: Chain) -> Found:
    """Return a norm of these rows with the weight, the bias and the casts behind it."""
    chain, weight = _columns(chain, "multiply")
    chain, bias = _columns(chain, "add")
    unit = replace(
        unit,
        scale=weight is not None,
        bias=bias is not None,
        output=_output(chain, unit.dtype),
    )
    weights = {"scale": weight, "bias": bias}
    return _placed(unit, rows, {k: v for k, v in weights.items() if v is not None}, chain)


def _placed(unit: Norm, rows: Strided, weights: dict[str, Array], chain: Chain) -> Found:
    """Return a norm whose rows are read where they lie. It writes them densely: those of a part in
    their order, all of a value in that of the value."""
    operands: dict[str, Operand] = {"input": rows.base, **weights}
    plain = Found(unit=unit, operands=operands, last=chain.last, replaced=chain.vars)
    if rows.dense:
        return _with_input(plain, unit, chain)
    if not has_all_rows(rows):
        return replace(plain, unit=replace(unit, x=rows_of(rows)))
    order = order_of(rows)
    plain = replace(
        plain,
        written=tuple(rows.shape[axis] for axis in order),
        permuted=tuple(order.index(axis) for axis in range(len(order))),
    )
    return _with_input(plain, unit, chain)


def _output(chain: Chain, dtype: Dtype) -> Dtype | None:
    """Return the type of a chain's result, if it is not the unit's own."""
    found = dtype_of(chain.last)
    return None if found == dtype else next(d for d in DTYPES if d == found)


def _moved(chain: Chain) -> Chain:
    """Return the chain with the casts and reshapes of whole rows after it."""
    graph = chain.graph
    while graph.fused and (reader := chain.next()) is not None:
        call = graph.call(reader, "astype", "reshape")
        same = shape_of(reader)[-1:] == shape_of(chain.last)[-1:]
        if call is None or not same or dtype_of(reader) not in DTYPES:
            break
        chain = chain.then(reader)
    return chain


def _with_cast(chain: Chain) -> Chain:
    """Return the chain with the casts after it, also after reshapes."""
    whole = _moved(chain)
    count = len(whole.vars)
    while count > len(chain.vars) and chain.graph.call(whole.vars[count - 1], "astype") is None:
        count -= 1
    return replace(chain, vars=whole.vars[:count])


def _mean_square(graph: Graph, value: relax.Expr) -> tuple[relax.Expr, float] | None:
    """Return x and epsilon of mean(x * x) + epsilon over the last axis."""
    total = graph.call(uncast(graph, value), "add")
    if total is None:
        return None
    numbers = [scalar(a) for a in total.args]
    epsilon = numbers[1] if numbers[0] is None else numbers[0]
    mean = graph.call(uncast(graph, total.args[0 if numbers[0] is None else 1]), "mean")
    if epsilon is None or mean is None or not _is_over_rows(mean):
        return None
    squared = _square_of(graph, _unshaped(graph, uncast(graph, mean.args[0])))
    return None if squared is None else (squared, epsilon)


def _sum_square(graph: Graph, value: relax.Expr) -> relax.Expr | None:
    """Return x of sum(x * x) over the last axis."""
    total = graph.call(uncast(graph, value), "sum")
    if total is None or not _is_over_rows(total):
        return None
    found = _square_of(graph, _unshaped(graph, uncast(graph, total.args[0])))
    if found is None:
        return None
    size = graph.call(uncast(graph, found), "abs")  # PyTorch's norms begin with it
    return found if size is None else size.args[0]


def _is_root(call: relax.Call) -> bool:
    return name_of(call) == "sqrt" or (name_of(call) == "power" and scalar(call.args[1]) == 0.5)


def _at_least(chain: Chain) -> tuple[Chain, float]:
    """Return the chain with a lower limit and with what repeats its values; and the limit, or 0."""
    limit = 0.0
    while chain.graph.fused and (reader := chain.next()) is not None:
        call = chain.graph.call(reader, "maximum", "minimum", "clip", "astype", "broadcast_to")
        if call is None:
            break
        if name_of(call) in ("maximum", "minimum", "clip"):
            numbers = [scalar(a) for a in call.args[1:]]
            low, high = numbers[0], numbers[-1] if name_of(call) != "maximum" else np.inf
            low = 0.0 if name_of(call) == "minimum" else low
            if low is None or high != np.inf:
                break
            limit = max(limit, low)
        chain = chain.then(reader)
    return chain, limit


def _square_of(graph: Graph, value: relax.Expr) -> relax.Expr | None:
    call = graph.call(value, "power", "multiply", "square")
    if call is None:
        return None
    if name_of(call) == "power" and scalar(call.args[1]) != 2.0:
        return None
    if name_of(call) == "multiply" and not call.args[0].same_as(call.args[1]):
        return None
    found: relax.Expr = call.args[0]
    return found


def _normed(chain: Chain, *, divides: bool) -> tuple[Chain, relax.Expr] | None:
    """Return the chain up to the product with the reciprocal root, and the product's other side."""
    chain = _moved(chain)
    reader = chain.next()
    if reader is None:
        return None
    call = chain.graph.call(reader, "divide" if divides else "multiply")
    if call is None:
        return None
    if divides:
        if not call.args[1].same_as(chain.last):
            return None
        if scalar(call.args[0]) == 1.0:
            return _normed(chain.then(reader), divides=False)
        return chain.then(reader), call.args[0]
    first, second = call.args
    value = second if first.same_as(chain.last) else first
    if value.same_as(chain.last):
        return None
    if scalar(value) == 1.0:  # PyTorch's 1 / x is a reciprocal times 1
        return _normed(chain.then(reader), divides=False)
    return chain.then(reader), value


def _columns(chain: Chain, name: str) -> tuple[Chain, Array | None]:
    """Return the chain with an operator with a constant per column, and casts; and that
    constant."""
    moved = _moved(chain)
    reader = moved.next()
    call = moved.graph.call(reader, name) if reader is not None else None
    if reader is None or call is None:
        return _with_cast(chain), None
    found = next((w for a in call.args if (w := constant(a)) is not None), None)
    columns = shape_of(moved.last)[-1]
    if found is None or found.shape[-1:] != (columns,) or found.size != columns:
        return _with_cast(chain), None
    return _with_cast(moved.then(reader)), found.astype(np.float32).reshape(-1)


def _centred(graph: Graph, value: relax.Expr) -> tuple[Dtype, Strided] | None:
    """Return y, if a value is y - mean(y) over the last axis."""
    call = graph.call(value, "subtract")
    mean = graph.call(uncast(graph, call.args[1]), "mean") if call is not None else None
    if call is None or mean is None or not _is_over_rows(mean):
        return None
    of_mean = dict(sources(graph, mean.args[0]))
    found = sources(graph, call.args[0])
    return next(((d, s) for d, s in found if d in of_mean and same_place(s, of_mean[d])), None)


def _is_over_rows(mean: relax.Call) -> bool:
    rank = len(shape_of(mean.args[0]))
    axes = [int(a) % rank for a in mean.attrs.axis or ()] if rank else []
    return bool(mean.attrs.keepdims) and axes == [rank - 1]


def _with_input(found: Found, unit: Norm, chain: Chain) -> Found:
    """Return the norm of what its input is made of, if that costs nothing more: the sum before it,
    which is stored too where something else reads it, and a wider value that was cast for it."""
    graph, value = chain.graph, found.operands["input"]
    if isinstance(value, np.ndarray) or not graph.fused:
        return found
    source = _wide(graph, value, chain.vars[0])
    total = _unshaped(graph, source)
    terms = _terms(chain, total)
    if terms is not None:
        source = total
    if terms is None and (source.same_as(value) or not _is_stored(chain, source)):
        return found
    chain, dtype = _with_cast(chain), next(d for d in DTYPES if d == dtype_of(source))
    unit = replace(unit, dtype=dtype, output=_output(chain, dtype))
    operands: dict[str, Operand] = {**found.operands, "input": source}
    replaced, kept = chain.vars, None
    if terms is not None and isinstance(source, relax.Var):
        inside, needed = _between(graph, source, chain.last)
        unit = replace(unit, residual=True, keep_sum=needed)
        operands |= {"input": terms[0], "residual": terms[1]}
        replaced = (source, *(v for v in inside if v not in chain.vars), *chain.vars)
        kept = source if needed else None
    return replace(
        found, unit=unit, operands=operands, last=chain.last, replaced=replaced, kept=kept
    )


def _wide(graph: Graph, value: relax.Expr, reader: relax.Var) -> relax.Expr:
    """Return the value before a cast that is made for one reader alone."""
    cast = graph.call(value, "astype")
    if cast is None or not isinstance(value, relax.Var) or graph.only_reader(value) != reader:
        return value
    known = isinstance(cast.args[0], relax.Var) and dtype_of(cast.args[0]) in DTYPES
    return cast.args[0] if known else value


def _unshaped(graph: Graph, value: relax.Expr) -> relax.Expr:
    """Return the value before reshapes that keep its rows."""
    while (call := graph.call(value, "reshape")) is not None:
        if shape_of(call.args[0])[-1:] != shape_of(value)[-1:]:
            break
        value = call.args[0]
    return value


def _is_stored(chain: Chain, value: relax.Expr) -> bool:
    """Whether a value is in memory anyway. One with a single reader is computed with that one, if
    no unit computes it."""
    if not isinstance(value, relax.Var) or value in chain.graph.hidden:
        return False
    computed = value in chain.graph.values and value not in chain.taken
    return not computed or len(set(chain.graph.readers[value])) > 1


def _terms(chain: Chain, total: relax.Expr) -> tuple[relax.Expr, relax.Expr] | None:
    """Return the terms of a sum if both are in memory anyway: others are computed with the sum."""
    graph, call = chain.graph, chain.graph.call(total, "add")
    if call is None or total in chain.taken or dtype_of(total) not in DTYPES:
        return None
    found = []
    for term in call.args:
        view = trace(graph, term)
        dense = [view.base, term] if view is not None and view.dense else [term]
        stored = [v for v in dense if shape_of(term) == shape_of(total) and _is_stored(chain, v)]
        if not stored:
            return None
        found.append(stored[0])
    return found[0], found[1]


def _between(graph: Graph, first: relax.Var, last: relax.Var) -> tuple[set[relax.Var], bool]:
    """Return the values on the ways from `first` to `last`, and whether others need `first`."""
    found: set[relax.Var] = set()
    ahead = [last]
    while ahead:
        var = ahead.pop()
        if graph.order.get(var, -1) > graph.order[first] and var not in found:
            found.add(var)
            ahead.extend(variables(graph.values[var]))
    on_the_way = found - {last}
    while read := {v for v in on_the_way if not set(graph.readers[v]) <= on_the_way | {last}}:
        on_the_way -= read
    needed = not set(graph.readers[first]) <= on_the_way | {last}
    return on_the_way, needed
