"""Softmax and layer norm as tensor expressions: each row is reduced in the lanes of a vector.

A sum over a row of n elements is 16 sums over every sixteenth element, then a sum over these and
over the few remaining elements: a vector unit can add in this order.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi

from tvmscope.compiler.kernels.marks import LANES, OP, STAGE

Combine = Callable[[tirx.Expr, tirx.Expr], tirx.Expr]


def _fold(data: te.Tensor, reduce: Callable[..., tirx.Expr], combine: Combine) -> te.Tensor:
    """Reduce each row of `data` to one value."""
    *rows, length = data.shape
    whole, rest = divmod(int(length), LANES)
    tail = [whole * LANES + j for j in range(rest)]
    head: te.Tensor | None = None
    if whole:
        k, lane = te.reduce_axis((0, whole), "k"), te.reduce_axis((0, LANES), "lane")
        lanes = te.compute(
            (*rows, LANES),
            lambda *i: reduce(data(*i[:-1], k * LANES + i[-1]), axis=k),
            name="lanes",
            attrs={STAGE: "lanes"},
        )
        head = te.compute(
            tuple(rows),
            lambda *i: reduce(lanes(*i, lane), axis=lane),
            name="head",
            attrs={STAGE: "across"},
        )
        if not tail:
            return head

    def value(*i: tirx.Var) -> tirx.Expr:
        values = [data(*i, j) for j in tail]
        total = values.pop() if head is None else head(*i)
        for one in values:
            total = combine(total, one)
        return total

    return te.compute(tuple(rows), value, name="row", attrs={STAGE: "scalar"})


def _sum(data: te.Tensor) -> te.Tensor:
    return _fold(data, te.sum, lambda a, b: a + b)


_largest = te.comm_reducer(
    lambda a, b: te.max(a, b), lambda dtype: -tirx.infinity(dtype), name="largest"
)
"""TVM's own maximum starts at the lowest finite number, which is above a row of -inf."""


def log_softmax(data: te.Tensor) -> te.Tensor:
    """Compute the logarithm of softmax over the last axis: x - maximum - log(sum of the powers)."""
    peak = _fold(data, _largest, te.max)
    total = _sum(_exponentials(data, lambda *i: data(*i) - peak(*i[:-1])))
    size = te.compute(
        data.shape[:-1], lambda *i: tirx.log(total(*i)), name="size", attrs={STAGE: "scalar"}
    )
    return te.compute(  # the maximum first: it may be so large that the logarithm is lost in it
        data.shape,
        lambda *i: data(*i) - peak(*i[:-1]) - size(*i[:-1]),
        name="log_softmax",
        attrs={OP: "rows"},
    )


def _exponentials(
    data: te.Tensor, exponent: Callable[..., tirx.Expr], attrs: dict[str, str] | None = None
) -> te.Tensor:
    """Return powers of e; NaN stays NaN, which the polynomial would turn into a number."""
    below = te.compute(data.shape, exponent, name="below")
    fast = topi.fast_exp(below)
    return te.compute(
        data.shape,
        lambda *i: tirx.Select(below(*i) == below(*i), fast(*i), below(*i)),
        name="powers",
        attrs=attrs,
    )


def powers(data: te.Tensor, *, empty_is_zero: bool) -> tuple[te.Tensor, te.Tensor]:
    """Return exp(x - the row's maximum), and the factor that makes a row's sum 1.

    A row of -inf gives NaN, or zeros with `empty_is_zero`.
    """
    peak = _fold(data, _largest, te.max)
    zero, one = (tirx.const(value, data.dtype) for value in (0.0, 1.0))

    def guarded(empty: tirx.Expr, usual: tirx.Expr, *i: tirx.Var) -> tirx.Expr:
        if not empty_is_zero:
            return usual
        return tirx.Select(peak(*i) == -tirx.infinity(data.dtype), empty, usual)

    result = _exponentials(
        data,
        lambda *i: data(*i) - guarded(zero, peak(*i[:-1]), *i[:-1]),
        {STAGE: "elements"},
    )
    total = _sum(result)
    scale = te.compute(
        data.shape[:-1],
        lambda *i: guarded(zero, one / total(*i), *i),
        name="scale",
        attrs={STAGE: "scalar"},
    )
    return result, scale


def softmax(data: te.Tensor, *, empty_is_zero: bool) -> te.Tensor:
    """Compute softmax over the last axis."""
    values, scale = powers(data, empty_is_zero=empty_is_zero)
    return te.compute(
        data.shape, lambda *i: values(*i) * scale(*i[:-1]), name="softmax", attrs={OP: "rows"}
    )


def layer_norm(data: te.Tensor, gain: te.Tensor, bias: te.Tensor, *, epsilon: float) -> te.Tensor:
    """Compute (x - mean) / sqrt(variance + epsilon) * gain + bias over the last axis."""
    rows, length = data.shape[:-1], tirx.const(float(int(data.shape[-1])), data.dtype)
    total = _sum(data)
    mean = te.compute(rows, lambda *i: total(*i) / length, name="mean", attrs={STAGE: "scalar"})
    squares = te.compute(
        data.shape,
        lambda *i: (data(*i) - mean(*i[:-1])) * (data(*i) - mean(*i[:-1])),
        name="squares",
    )
    spread = _sum(squares)
    scale = te.compute(
        rows,
        lambda *i: (
            tirx.const(1.0, data.dtype)
            / tirx.sqrt(spread(*i) / length + tirx.const(epsilon, data.dtype))
        ),
        name="scale",
        attrs={STAGE: "scalar"},
    )
    return te.compute(
        data.shape,
        lambda *i: (data(*i) - mean(*i[:-1])) * scale(*i[:-1]) * gain(i[-1]) + bias(i[-1]),
        name="layer_norm",
        attrs={OP: "rows"},
    )
