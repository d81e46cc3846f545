"""Rows that are normalised: softmax, layer norm, RMS norm, rows of length one.

A row that fits TILE_N is read once and stays in registers; a longer one is read again for every
pass, TILE_N values at a time, out of the caches.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import at_least
from tvmscope.cuda.templates.launch import release, wait


@triton.jit
def _weights(value, sums, LOG: tl.constexpr):
    """Powers of two over the sums of their rows, or the natural logarithm of that."""
    sums = tl.where(sums == 0.0, 1.0, sums)[:, None]
    if LOG:
        out = (value - tl.log2(sums)) * 0.6931471805599453
    else:
        out = tl.exp2(value) / sums
    return out


@triton.jit
def softmax(
    x, y,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SCALE: tl.constexpr, LOG: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    LOG2_E: tl.constexpr = 1.4426950408889634
    # what is past a row's end is -inf when it is multiplied
    PAST: tl.constexpr = float("-inf") if SCALE > 0 else float("inf")
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    n = tl.arange(0, TILE_N)
    m_ok = (m < ROWS)[:, None]
    at = m[:, None] * COLUMNS + n[None, :]
    wait(PDL)
    if COLUMNS <= TILE_N:
        ok = m_ok & (n < COLUMNS)[None, :]
        value = tl.load(x + at, mask=ok, other=PAST).to(tl.float32) * (SCALE * LOG2_E)
        release(PDL)
        top = tl.max(value, 1)
        base = tl.where(top == float("-inf"), 0.0, top)
        sums = tl.sum(tl.exp2(value - base[:, None]), 1)
        out = _weights(value - base[:, None], sums, LOG)
        tl.store(y + at, out.to(y.dtype.element_ty), mask=ok)
    else:
        top = tl.full((TILE_M,), float("-inf"), tl.float32)
        sums = tl.zeros((TILE_M,), tl.float32)
        for start in range(0, COLUMNS, TILE_N):
            ok = m_ok & (start + n < COLUMNS)[None, :]
            value = tl.load(x + at + start, mask=ok, other=PAST).to(tl.float32)
            value = value * (SCALE * LOG2_E)
            higher = tl.maximum(top, tl.max(value, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            sums = sums * tl.exp2(top - base) + tl.sum(tl.exp2(value - base[:, None]), 1)
            top = higher
        release(PDL)
        base = tl.where(top == float("-inf"), 0.0, top)
        for start in range(0, COLUMNS, TILE_N):
            ok = m_ok & (start + n < COLUMNS)[None, :]
            value = tl.load(x + at + start, mask=ok, other=PAST).to(tl.float32)
            out = _weights(value * (SCALE * LOG2_E) - base[:, None], sums, LOG)
            tl.store(y + at + start, out.to(y.dtype.element_ty), mask=ok)


@triton.jit
def _summed(x, x_at, residual, at, ok, RESIDUAL: tl.constexpr):
    value = tl.load(x + x_at, mask=ok, other=0.0).to(tl.float32)
    if RESIDUAL:
        value += tl.load(residual + at, mask=ok, other=0.0).to(tl.float32)
    return value


@triton.jit
def _reciprocal(squares, COLUMNS: tl.constexpr, EPSILON: tl.constexpr, LENGTH: tl.constexpr):
    """What rows are multiplied by, from the sums of their squares."""
    if LENGTH:
        factor = 1.0 / at_least(tl.sqrt(squares), EPSILON)
    else:
        factor = tl.rsqrt(squares / COLUMNS + EPSILON)
    return factor


@triton.jit
def _scaled(value, scale, bias, n, n_ok, SCALED: tl.constexpr, BIAS: tl.constexpr):
    if SCALED:
        value = value * tl.load(scale + n, mask=n_ok, other=0.0)[None, :]
    if BIAS:
        value = value + tl.load(bias + n, mask=n_ok, other=0.0)[None, :]
    return value


@triton.jit
def norm(
    x, scale, bias, residual, y, total,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    CENTRED: tl.constexpr, LENGTH: tl.constexpr, EPSILON: tl.constexpr,
    SCALED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KEEP: tl.constexpr,
    X_MIDDLE: tl.constexpr, X_INNER: tl.constexpr,
    X_0: tl.constexpr, X_1: tl.constexpr, X_2: tl.constexpr, X_OFFSET: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    n = tl.arange(0, TILE_N)
    m_ok = (m < ROWS)[:, None]
    at = m[:, None] * COLUMNS + n[None, :]
    if X_INNER:
        x_rows = m // (X_MIDDLE * X_INNER) * X_0 + X_OFFSET
        x_rows += m // X_INNER % X_MIDDLE * X_1 + m % X_INNER * X_2
        x_at = x_rows[:, None] + n[None, :]
    else:
        x_at = at
    wait(PDL)
    if COLUMNS <= TILE_N:
        n_ok = n < COLUMNS
        ok = m_ok & n_ok[None, :]
        value = _summed(x, x_at, residual, at, ok, RESIDUAL)
        release(PDL)
        if KEEP:
            tl.store(total + at, value.to(total.dtype.element_ty), mask=ok)
        if CENTRED:
            value = tl.where(ok, value - (tl.sum(value, 1) / COLUMNS)[:, None], 0.0)
        squares = tl.sum(value * value, 1)
        value = value * _reciprocal(squares, COLUMNS, EPSILON, LENGTH)[:, None]
        value = _scaled(value, scale, bias, n, n_ok, SCALED, BIAS)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=ok)
    else:
        centre = tl.zeros((TILE_M, TILE_N), tl.float32)
        if CENTRED:
            for start in range(0, COLUMNS, TILE_N):
                ok = m_ok & (start + n < COLUMNS)[None, :]
                centre += _summed(x, x_at + start, residual, at + start, ok, RESIDUAL)
        middle = (tl.sum(centre, 1) / COLUMNS)[:, None]
        squares = tl.zeros((TILE_M, TILE_N), tl.float32)
        for start in range(0, COLUMNS, TILE_N):
            ok = m_ok & (start + n < COLUMNS)[None, :]
            value = _summed(x, x_at + start, residual, at + start, ok, RESIDUAL)
            if KEEP:
                tl.store(total + at + start, value.to(total.dtype.element_ty), mask=ok)
            value = tl.where(ok, value - middle, 0.0)
            squares += value * value
        release(PDL)
        factor = _reciprocal(tl.sum(squares, 1), COLUMNS, EPSILON, LENGTH)[:, None]
        for start in range(0, COLUMNS, TILE_N):
            n_ok = start + n < COLUMNS
            ok = m_ok & n_ok[None, :]
            value = (_summed(x, x_at + start, residual, at + start, ok, RESIDUAL) - middle) * factor
            value = _scaled(value, scale, bias, start + n, n_ok, SCALED, BIAS)
            tl.store(y + at + start, value.to(y.dtype.element_ty), mask=ok)
