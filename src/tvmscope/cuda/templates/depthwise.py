"""Depthwise convolution, NHWC: every output channel sees one input channel.

    for each tile of TILE_M pixels (TILE_W wide) x TILE_N channels:
        for each tap:  load, multiply, add      (loads of neighbouring pixels meet in the L1 cache)
        bias, residual, activation, cast, store

Weights are packed [R*S, OC].
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import finish
from tvmscope.cuda.templates.launch import release, wait


@triton.jit
def pixels_of(tile, P: tl.constexpr, Q: tl.constexpr, TILE_M: tl.constexpr, TILE_W: tl.constexpr):
    """Image, row and column of each pixel of a tile that is TILE_W wide; whether it exists."""
    TILE_H: tl.constexpr = TILE_M // TILE_W
    ACROSS: tl.constexpr = (Q + TILE_W - 1) // TILE_W
    DOWN: tl.constexpr = (P + TILE_H - 1) // TILE_H
    i = tl.arange(0, TILE_M)
    image = tile // (ACROSS * DOWN)
    p = tile // ACROSS % DOWN * TILE_H + i // TILE_W
    q = tile % ACROSS * TILE_W + i % TILE_W
    return image, p, q, (p < P) & (q < Q)


@triton.jit
def depthwise(
    x, w, bias, residual, y,
    H: tl.constexpr, W: tl.constexpr, OC: tl.constexpr, EACH: tl.constexpr,
    P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DILATE_H: tl.constexpr, DILATE_W: tl.constexpr, PADDED: tl.constexpr,
    X_PITCH: tl.constexpr, X_OFFSET: tl.constexpr, Y_PITCH: tl.constexpr, Y_OFFSET: tl.constexpr,
    Z_PITCH: tl.constexpr, Z_OFFSET: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_W: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    TILES_N: tl.constexpr = (OC + TILE_N - 1) // TILE_N
    pid = tl.program_id(0)
    n = pid % TILES_N * TILE_N + tl.arange(0, TILE_N)
    n_ok = n < OC
    image, p, q, m_ok = pixels_of(pid // TILES_N, P, Q, TILE_M, TILE_W)
    row_bias = tl.zeros((1, TILE_N), tl.float32)
    if BIAS:
        row_bias = tl.load(bias + n, mask=n_ok, other=0.0)[None, :]
    wait(PDL)

    top = p * STRIDE_H - PAD_H
    left = q * STRIDE_W - PAD_W
    at = ((image * H + top) * W + left) * X_PITCH + X_OFFSET
    if EACH == 1:
        channel = n
    else:
        channel = n // EACH
    pixel = (image * P + p) * Q + q
    z = tl.zeros((TILE_M, TILE_N), tl.float32)
    if RESIDUAL != "none":
        z_at = (pixel * Z_PITCH + Z_OFFSET)[:, None] + n[None, :]
        z = tl.load(residual + z_at, mask=m_ok[:, None] & n_ok[None, :], other=0.0).to(tl.float32)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            down = r * DILATE_H
            right = s * DILATE_W
            ok = m_ok
            if PADDED:
                ok = ok & (top + down >= 0) & (top + down < H)
                ok = ok & (left + right >= 0) & (left + right < W)
            move = (down * W + right) * X_PITCH
            place = x + (at + move)[:, None] + channel[None, :]
            value = tl.load(place, mask=ok[:, None] & n_ok[None, :], other=0.0)
            tap = tl.load(w + (r * S + s) * OC + n, mask=n_ok, other=0.0)
            total += value.to(tl.float32) * tap.to(tl.float32)[None, :]
    release(PDL)

    ok = m_ok[:, None] & n_ok[None, :]
    total = finish(total, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
    y_at = (pixel * Y_PITCH + Y_OFFSET)[:, None] + n[None, :]
    tl.store(y + y_at, total.to(y.dtype.element_ty), mask=ok)
