"""Pooling, NHWC: the largest or mean value under a window, or the mean of a whole image."""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.depthwise import pixels_of
from tvmscope.cuda.templates.epilogue import at_least
from tvmscope.cuda.templates.launch import release, wait


@triton.jit
def pool(
    x, y,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr, END_H: tl.constexpr, END_W: tl.constexpr,
    X_PITCH: tl.constexpr, X_OFFSET: tl.constexpr, Y_PITCH: tl.constexpr, Y_OFFSET: tl.constexpr,
    LARGEST: tl.constexpr, COUNT_PADDING: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_W: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """END_H and END_W are the image's size with its padding behind: what a mean may count."""
    TILES_N: tl.constexpr = (C + TILE_N - 1) // TILE_N
    pid = tl.program_id(0)
    n = pid % TILES_N * TILE_N + tl.arange(0, TILE_N)
    n_ok = n < C
    image, p, q, m_ok = pixels_of(pid // TILES_N, P, Q, TILE_M, TILE_W)
    top = p * STRIDE_H - PAD_H
    left = q * STRIDE_W - PAD_W
    at = ((image * H + top) * W + left) * X_PITCH + X_OFFSET
    wait(PDL)
    if LARGEST:
        total = tl.full((TILE_M, TILE_N), float("-inf"), tl.float32)
    else:
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
    # a small window is unrolled, so that its loads are in flight together
    if R * S <= 25:
        for r in tl.static_range(R):
            for s in tl.static_range(S):
                total = _take(total, x, at, top, left, n, m_ok, n_ok, r, s, H, W, X_PITCH, LARGEST)
    else:
        for tap in range(R * S):
            total = _take(
                total, x, at, top, left, n, m_ok, n_ok, tap // S, tap % S, H, W, X_PITCH, LARGEST
            )
    release(PDL)
    if not LARGEST:
        if COUNT_PADDING:
            rows = tl.minimum(top + R, END_H) - top
            columns = tl.minimum(left + S, END_W) - left
        else:
            rows = tl.minimum(top + R, H) - tl.maximum(top, 0)
            columns = tl.minimum(left + S, W) - tl.maximum(left, 0)
        total = total / (rows * columns).to(tl.float32)[:, None]
    y_at = (((image * P + p) * Q + q) * Y_PITCH + Y_OFFSET)[:, None] + n[None, :]
    tl.store(y + y_at, total.to(y.dtype.element_ty), mask=m_ok[:, None] & n_ok[None, :])


@triton.jit
def _take(
    total, x, at, top, left, n, m_ok, n_ok, r, s,
    H: tl.constexpr, W: tl.constexpr, X_PITCH: tl.constexpr, LARGEST: tl.constexpr,
):  # fmt: skip
    ok = m_ok & (top + r >= 0) & (top + r < H) & (left + s >= 0) & (left + s < W)
    place = x + (at + (r * W + s) * X_PITCH)[:, None] + n[None, :]
    if LARGEST:
        value = tl.load(place, mask=ok[:, None] & n_ok[None, :], other=float("-inf"))
        return at_least(value.to(tl.float32), total)
    return total + tl.load(place, mask=ok[:, None] & n_ok[None, :], other=0.0).to(tl.float32)


@triton.jit
def mean(
    x, y,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
    X_PITCH: tl.constexpr, X_OFFSET: tl.constexpr, Y_PITCH: tl.constexpr, Y_OFFSET: tl.constexpr,
    LARGEST: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute one value per image and channel: TILE_M pixels at a time, reduced at the end."""
    TILES_N: tl.constexpr = (C + TILE_N - 1) // TILE_N
    pid = tl.program_id(0)
    image = pid // TILES_N
    n = pid % TILES_N * TILE_N + tl.arange(0, TILE_N)
    m = tl.arange(0, TILE_M)
    n_ok = n < C
    if LARGEST:
        total = tl.full((TILE_M, TILE_N), float("-inf"), tl.float32)
    else:
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
    wait(PDL)
    for start in range(0, H * W, TILE_M):
        pixel = start + m
        place = (image * (H * W) + pixel) * X_PITCH + X_OFFSET
        ok = (pixel < H * W)[:, None] & n_ok[None, :]
        if LARGEST:
            value = tl.load(x + place[:, None] + n[None, :], mask=ok, other=float("-inf"))
            total = at_least(value.to(tl.float32), total)
        else:
            value = tl.load(x + place[:, None] + n[None, :], mask=ok, other=0.0)
            total += value.to(tl.float32)
    release(PDL)
    if LARGEST:
        out = tl.max(total, 0)
    else:
        out = tl.sum(total, 0) / (H * W)
    tl.store(y + image * Y_PITCH + Y_OFFSET + n, out.to(y.dtype.element_ty), mask=n_ok)
