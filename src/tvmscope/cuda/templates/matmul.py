"""Matrix product with constant strides, batched over two outer axes, with the epilogue inside.

    for each batch, tile of TILE_M x TILE_N, and each of SPLIT parts of K:
        for TILE_K of K:  multiply, add (tensor cores)
    the last block of a tile: sum of the parts, bias, residual, activation, cast, store

Transposed operands, heads inside rows and slices of wider tensors are only other strides.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import finish
from tvmscope.cuda.templates.launch import hold, prefetch, release, wait
from tvmscope.cuda.templates.tiles import product, share_part, sum_parts, tile_of


@triton.jit
def matmul(
    x, w, bias, residual, y, workspace, counters,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BATCHES: tl.constexpr,
    INNER: tl.constexpr,
    A_M: tl.constexpr, A_K: tl.constexpr, A_OUTER: tl.constexpr, A_INNER: tl.constexpr,
    A_OFFSET: tl.constexpr,
    B_K: tl.constexpr, B_N: tl.constexpr, B_OUTER: tl.constexpr, B_INNER: tl.constexpr,
    B_OFFSET: tl.constexpr,
    Y_M: tl.constexpr, Y_N: tl.constexpr, Y_OUTER: tl.constexpr, Y_INNER: tl.constexpr,
    Y_OFFSET: tl.constexpr,
    Z_M: tl.constexpr, Z_N: tl.constexpr, Z_OUTER: tl.constexpr, Z_INNER: tl.constexpr,
    Z_OFFSET: tl.constexpr, SCALE: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, PRECISION: tl.constexpr, WEIGHT: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SPLIT: tl.constexpr,
    GROUP: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    TILES_M: tl.constexpr = (M + TILE_M - 1) // TILE_M
    TILES_N: tl.constexpr = (N + TILE_N - 1) // TILE_N
    TILES_K: tl.constexpr = (K + TILE_K - 1) // TILE_K
    EACH: tl.constexpr = (TILES_K + SPLIT - 1) // SPLIT
    # whether no load of the main loop can reach past the end of K
    FULL_K: tl.constexpr = K % TILE_K == 0 and TILES_K % SPLIT == 0

    pid = tl.program_id(0)
    part = 0 if SPLIT == 1 else tl.program_id(1)
    batch = 0 if BATCHES == 1 else tl.program_id(2)
    outer = batch // INNER
    inner = batch % INNER
    tile_m, tile_n = tile_of(pid, TILES_M, TILES_N, GROUP)
    m = tile_m * TILE_M + tl.arange(0, TILE_M)
    n = tile_n * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    m_ok = m < M
    n_ok = n < N
    # rows past the end are masked: if they repeated the last one, all blocks of the edge would ask
    # one slice of the L2 cache for the same line, which took up to three times as long
    FULL_M: tl.constexpr = M % TILE_M == 0
    FULL_N: tl.constexpr = N % TILE_N == 0
    a_row = m * A_M + (outer * A_OUTER + inner * A_INNER + A_OFFSET)
    b_column = n * B_N + (outer * B_OUTER + inner * B_INNER + B_OFFSET)
    first = part * EACH
    row_bias = tl.zeros((1, TILE_N), tl.float32)
    if BIAS:
        row_bias = tl.load(bias + n, mask=n_ok, other=0.0)[None, :]
    if PDL > 1 and WEIGHT:
        # the weights of this block, 128 bytes at a time, while the kernel before still runs
        LINE: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth
        for i in tl.static_range(min(EACH, 8)):
            if B_K == 1:
                start_n = b_column - tl.maximum(n - (N - 1), 0) * B_N
                for line in tl.static_range((TILE_K + LINE - 1) // LINE):
                    prefetch(w + start_n + tl.minimum((first + i) * TILE_K + line * LINE, K - 1))
            else:
                rows = tl.minimum((first + i) * TILE_K + k, K - 1)
                for line in tl.static_range((TILE_N + LINE - 1) // LINE):
                    start = tl.minimum(tile_n * TILE_N + line * LINE, N - 1)
                    prefetch(w + rows * B_K + start)
    wait(PDL)

    ok = m_ok[:, None] & n_ok[None, :]
    z = tl.zeros((TILE_M, TILE_N), tl.float32)
    z_at = (m * Z_M)[:, None] + (n * Z_N)[None, :]
    z_at += outer * Z_OUTER + inner * Z_INNER + Z_OFFSET
    if RESIDUAL != "none" and EARLY:
        early = tl.load(residual + z_at, mask=ok, other=0.0)

    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for i in tl.range(0, EACH):
        e = (first + i) * TILE_K + k
        e_ok = e < K
        a_at = x + a_row[:, None] + (e * A_K)[None, :]
        b_at = w + (e * B_K)[:, None] + b_column[None, :]
        if FULL_K and FULL_M:
            a = tl.load(a_at)
        elif FULL_K:
            a = tl.load(a_at, mask=m_ok[:, None], other=0.0)
        elif FULL_M:
            a = tl.load(a_at, mask=e_ok[None, :], other=0.0)
        else:
            a = tl.load(a_at, mask=m_ok[:, None] & e_ok[None, :], other=0.0)
        if FULL_K and FULL_N:
            b = tl.load(b_at)
        elif FULL_K:
            b = tl.load(b_at, mask=n_ok[None, :], other=0.0)
        elif FULL_N:
            b = tl.load(b_at, mask=e_ok[:, None], other=0.0)
        else:
            b = tl.load(b_at, mask=e_ok[:, None] & n_ok[None, :], other=0.0)
        total = product(a, b, total, PRECISION)
    release(PDL)

    y_at = (m * Y_M)[:, None] + (n * Y_N)[None, :]
    y_at += outer * Y_OUTER + inner * Y_INNER + Y_OFFSET
    if SPLIT == 1:
        if RESIDUAL != "none":
            if EARLY:
                z = hold(early, EARLY).to(tl.float32)
            else:
                z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
        total = finish(total * SCALE, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
        tl.store(y + y_at, total.to(y.dtype.element_ty), mask=ok)
    else:
        tile = batch * (TILES_M * TILES_N) + pid
        if share_part(total, workspace, counters, tile, part, TILE_M, TILE_N, SPLIT):
            if RESIDUAL != "none" and not EARLY:
                z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
            total = sum_parts(workspace, counters, tile, TILE_M, TILE_N, SPLIT)
            total = finish(total * SCALE, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
            tl.store(y + y_at, total.to(y.dtype.element_ty), mask=ok)
