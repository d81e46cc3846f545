"""Products with few rows: a block takes whole stretches of TILE_N weight columns and one row.

Bound by reading the weights once, so there are no tensor cores: each thread multiplies 16 bytes of
them at a time, and a block's threads sum over K at the end. The right side is contiguous along K.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import finish
from tvmscope.cuda.templates.launch import release, wait
from tvmscope.cuda.templates.tiles import share_part, sum_parts


@triton.jit
def matvec(
    x, w, bias, residual, y, workspace, counters,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BATCHES: tl.constexpr,
    INNER: tl.constexpr,
    A_M: tl.constexpr, A_K: tl.constexpr, A_OUTER: tl.constexpr, A_INNER: tl.constexpr,
    A_OFFSET: tl.constexpr,
    B_N: tl.constexpr, B_OUTER: tl.constexpr, B_INNER: tl.constexpr,
    B_OFFSET: tl.constexpr,
    Y_M: tl.constexpr, Y_N: tl.constexpr, Y_OUTER: tl.constexpr, Y_INNER: tl.constexpr,
    Y_OFFSET: tl.constexpr,
    Z_M: tl.constexpr, Z_N: tl.constexpr, Z_OUTER: tl.constexpr, Z_INNER: tl.constexpr,
    Z_OFFSET: tl.constexpr, SCALE: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    TILE_N: tl.constexpr, TILE_K: tl.constexpr, SPLIT: tl.constexpr, WEIGHT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    TILES_N: tl.constexpr = (N + TILE_N - 1) // TILE_N
    TILES_K: tl.constexpr = (K + TILE_K - 1) // TILE_K
    EACH: tl.constexpr = (TILES_K + SPLIT - 1) // SPLIT
    pid = tl.program_id(0)
    part = 0 if SPLIT == 1 else tl.program_id(1)
    row = 0 if M == 1 else tl.program_id(2) % M
    batch = 0 if BATCHES == 1 else tl.program_id(2) // M
    outer = batch // INNER
    inner = batch % INNER
    n = pid * TILE_N + tl.arange(0, TILE_N)
    n_ok = n < N
    k = tl.arange(0, TILE_K)
    a = x + row * A_M + outer * A_OUTER + inner * A_INNER + A_OFFSET
    column = tl.minimum(n, N - 1) * B_N + outer * B_OUTER + inner * B_INNER + B_OFFSET
    row_bias = tl.zeros((1, TILE_N), tl.float32)
    if BIAS:
        row_bias = tl.load(bias + n, mask=n_ok, other=0.0)[None, :]
    total = tl.zeros((TILE_N, TILE_K), tl.float32)
    if EACH == 1 and WEIGHT:
        # all the weights of the block are asked for before the input exists
        e = part * TILE_K + k
        stretch = tl.load(w + column[:, None] + e[None, :], mask=(e < K)[None, :], other=0.0)
        wait(PDL)
        value = tl.load(a + e * A_K, mask=e < K, other=0.0).to(tl.float32)
        total = stretch.to(tl.float32) * value[None, :]
    else:
        wait(PDL)
        for i in tl.range(0, EACH):
            e = (part * EACH + i) * TILE_K + k
            ok = e < K
            value = tl.load(a + e * A_K, mask=ok, other=0.0).to(tl.float32)
            w_at = w + column[:, None] + e[None, :]
            stretch = tl.load(w_at, mask=ok[None, :], other=0.0).to(tl.float32)
            total += stretch * value[None, :]
    release(PDL)
    out = tl.sum(total, 1)[None, :]
    ok = n_ok[None, :]
    y_at = (row * Y_M + outer * Y_OUTER + inner * Y_INNER + Y_OFFSET + n * Y_N)[None, :]
    z_at = (row * Z_M + outer * Z_OUTER + inner * Z_INNER + Z_OFFSET + n * Z_N)[None, :]
    z = tl.zeros((1, TILE_N), tl.float32)
    if SPLIT == 1:
        if RESIDUAL != "none":
            z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
        out = finish(out * SCALE, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
        tl.store(y + y_at, out.to(y.dtype.element_ty), mask=ok)
    else:
        tile = tl.program_id(2) * TILES_N + pid
        if share_part(out, workspace, counters, tile, part, 1, TILE_N, SPLIT):
            if RESIDUAL != "none":
                z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
            out = sum_parts(workspace, counters, tile, 1, TILE_N, SPLIT)
            out = finish(out * SCALE, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
            tl.store(y + y_at, out.to(y.dtype.element_ty), mask=ok)
