"""The operators after a sum inside the same kernel: bias, residual, activation, pool and cast."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid(v):
    return 1.0 / (1.0 + tl.exp(-v))


@triton.jit
def tanh(v):
    # exp overflows to infinity for large v, which gives exactly 1
    return 1.0 - 2.0 / (tl.exp(2.0 * v) + 1.0)


@triton.jit
def tanh_all(v):
    """Also for small v, of which the difference above leaves no digits."""
    s = v * v
    p = ((62.0 / 2835.0 * s - 17.0 / 315.0) * s + 2.0 / 15.0) * s - 1.0 / 3.0
    return tl.where(s < 0.0625, v + v * s * p, tanh(v))


@triton.jit
def expm1(v):
    p = ((((v / 6.0 + 1.0) * v / 5.0 + 1.0) * v / 4.0 + 1.0) * v / 3.0 + 1.0) * v / 2.0 + 1.0
    return tl.where(tl.abs(v) < 0.25, v * p, tl.exp(v) - 1.0)


@triton.jit
def log1p(v):
    """For v >= 0."""
    p = ((-0.25 * v + 1.0 / 3.0) * v - 0.5) * v + 1.0
    return tl.where(v < 0.03, v * p, tl.log(1.0 + v))


@triton.jit
def mish(v):
    e = tl.exp(at_most(v, 20.0))  # above, the quotient is 1
    n = e * (e + 2.0)
    return v * (n / (n + 2.0))


@triton.jit
def at_least(v, low):
    """Return the larger value; NaN stays NaN, as in PyTorch (a hardware maximum drops it)."""
    return tl.maximum(v, low, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def at_most(v, high):
    return tl.minimum(v, high, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def gelu_narrow(v):
    """GELU to 6e-6 by a polynomial, for results of 16 bits: v * P(v), where P(v) - 0.5 is odd and
    reaches 0.5 at 4.75. The library's erf takes five times as many instructions, and registers that
    a large tile does not have."""
    t = tl.minimum(v * v, 22.5625) * 0.0886426593 - 1.0
    p = 0.00128026959 * t - 0.00377104874
    p = p * t + 0.00501596881
    p = p * t - 0.00716880569
    p = p * t + 0.0134056462
    p = p * t - 0.0216495879
    p = p * t + 0.0304028783
    p = p * t - 0.0405682586
    p = p * t + 0.0532353073
    p = p * t - 0.0736676082
    p = p * t + 0.148748428
    odd = p * tl.minimum(tl.maximum(v, -4.75), 4.75)
    return v * tl.minimum(tl.maximum(odd, -0.5), 0.5) + 0.5 * v  # a NaN comes through v


@triton.jit
def activate(v, KIND: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Apply the activation `KIND` to float32 values; FIRST and SECOND are its parameters."""
    if KIND == "relu":
        v = at_least(v, 0.0)
    elif KIND == "relu6":
        v = at_most(at_least(v, 0.0), 6.0)
    elif KIND == "clip":
        v = at_most(at_least(v, FIRST), SECOND)
    elif KIND == "leaky_relu":
        v = tl.where(v < 0.0, v * FIRST, v)
    elif KIND == "sigmoid":
        v = sigmoid(v)
    elif KIND == "silu":
        v = v * sigmoid(v)
    elif KIND == "hardswish":
        v = v * (at_most(at_least(v + 3.0, 0.0), 6.0) * (1.0 / 6.0))
    elif KIND == "tanh":
        v = tanh_all(v)
    elif KIND == "elu":
        v = tl.where(v > 0.0, v, expm1(v))
    elif KIND == "selu":
        v = 1.0507009873554805 * tl.where(v > 0.0, v, 1.6732632423543772 * expm1(v))
    elif KIND == "softplus":
        v = at_least(v, 0.0) + log1p(tl.exp(-tl.abs(v)))
    elif KIND == "mish":
        v = mish(v)
    elif KIND == "softsign":
        v = v / (1.0 + tl.abs(v))
    elif KIND == "relu_squared":
        v = at_least(v, 0.0)
        v = v * v
    elif KIND == "gelu":
        v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    elif KIND == "gelu_narrow":
        v = gelu_narrow(v)
    elif KIND == "quick_gelu":
        v = v * sigmoid(1.702 * v)
    elif KIND == "gelu_tanh":
        v = 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
    else:
        tl.static_assert(KIND == "none", "unknown activation")
    return v


@triton.jit
def finish(
    total, bias, residual,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
    KIND: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    """Return the finished float32 values of a tile; `bias` is a row of it, `residual` all of it."""
    if BIAS:
        total += bias
    if RESIDUAL == "before":
        total += residual
    total = activate(total, KIND, FIRST, SECOND)
    if RESIDUAL == "after":
        total += residual
    if RESIDUAL == "factor":
        total *= residual
    return total


@triton.jit
def pool_rows(
    total, ok, POOL: tl.constexpr, PIXELS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Return the largest or the mean of each ROWS rows of a tile, of which PIXELS are `ok`."""
    if POOL != "none":
        TILE_M: tl.constexpr = total.shape[0]
        TILE_N: tl.constexpr = total.shape[1]
        if ROWS != PIXELS:
            total = tl.where(ok[:, None], total, float("-inf") if POOL == "max" else 0.0)
        total = tl.reshape(total, (TILE_M // ROWS, ROWS, TILE_N))
        if POOL == "max":
            total = tl.reduce(total, 1, at_least)
        else:
            total = tl.sum(total, 1) / PIXELS
    return total
