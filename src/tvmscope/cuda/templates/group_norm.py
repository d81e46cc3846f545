"""Group norm and instance norm, NHWC: whole groups of channels over all pixels of an image.

    for each image, each TILE_N channels (some groups, each padded to EACH channels):
        for TILE_M pixels at a time:  sum, sum of squares      (in registers if they are all)
        for TILE_M pixels at a time:  normalise, scale, bias, residual, activation, cast, store

Sums are of differences from the group's first value: a mean that is large beside the spread would
otherwise take all digits of the squares.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import at_least, finish
from tvmscope.cuda.templates.launch import release, wait


@triton.jit
def _of_groups(values):
    """Sum over the pixels and channels of each group."""
    return tl.sum(tl.sum(values, 2), 0)


@triton.jit
def _stored(
    value, gain, shift, residual, y, at, ok,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
    KIND: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    z = tl.zeros(value.shape, tl.float32)
    if RESIDUAL != "none":
        z = tl.load(residual + at, mask=ok, other=0.0).to(tl.float32)
    value = finish(value * gain, shift, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=ok)


@triton.jit
def group_norm(
    x, scale, bias, residual, y,
    PIXELS: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr, EACH: tl.constexpr,
    EPSILON: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    WIDTH: tl.constexpr = C // GROUPS
    COUNT: tl.constexpr = PIXELS * WIDTH
    TILE_G: tl.constexpr = TILE_N // EACH
    TILES: tl.constexpr = (GROUPS + TILE_G - 1) // TILE_G
    pid = tl.program_id(0)
    g = pid % TILES * TILE_G + tl.arange(0, TILE_G)
    channel = tl.arange(0, EACH)
    m = tl.arange(0, TILE_M)
    n = g[:, None] * WIDTH + channel[None, :]
    n_ok = (g < GROUPS)[:, None] & (channel < WIDTH)[None, :]
    gain = tl.load(scale + n, mask=n_ok, other=0.0)[None, :, :]
    shift = tl.zeros((1, TILE_G, EACH), tl.float32)
    if BIAS:
        shift = tl.load(bias + n, mask=n_ok, other=0.0)[None, :, :]
    wait(PDL)

    image = pid // TILES * PIXELS * C
    at = image + m[:, None, None] * C + n[None, :, :]
    if PIXELS <= TILE_M:
        ok = (m < PIXELS)[:, None, None] & n_ok[None, :, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        release(PDL)
        centre = _of_groups(value) / COUNT
        value = tl.where(ok, value - centre[None, :, None], 0.0)
        spread = _of_groups(value * value) / COUNT
        value = value * tl.rsqrt(spread + EPSILON)[None, :, None]
        _stored(value, gain, shift, residual, y, at, ok, BIAS, RESIDUAL, KIND, FIRST, SECOND)
    else:
        first = tl.load(x + image + g * WIDTH, mask=g < GROUPS, other=0.0).to(tl.float32)
        sums = tl.zeros((TILE_M, TILE_G, EACH), tl.float32)
        squares = tl.zeros((TILE_M, TILE_G, EACH), tl.float32)
        for start in range(0, PIXELS, TILE_M):
            ok = (start + m < PIXELS)[:, None, None] & n_ok[None, :, :]
            value = tl.load(x + at + start * C, mask=ok, other=0.0).to(tl.float32)
            value = tl.where(ok, value - first[None, :, None], 0.0)
            sums += value
            squares += value * value
        release(PDL)
        centre = _of_groups(sums) / COUNT
        spread = at_least(_of_groups(squares) / COUNT - centre * centre, 0.0)
        factor = tl.rsqrt(spread + EPSILON)[None, :, None]
        centre = (centre + first)[None, :, None]
        for start in range(0, PIXELS, TILE_M):
            ok = (start + m < PIXELS)[:, None, None] & n_ok[None, :, :]
            value = tl.load(x + at + start * C, mask=ok, other=0.0).to(tl.float32)
            value = (value - centre) * factor
            place = at + start * C
            _stored(value, gain, shift, residual, y, place, ok, BIAS, RESIDUAL, KIND, FIRST, SECOND)
