"""Convolution as an implicit GEMM: NHWC input, rows are output pixels, columns output channels.

    for each tile of TILE_M pixels x TILE_N channels of one group, and each of SPLIT parts of K:
        for TILE_K of the R*S*C values under the window:  gather, multiply, add (tensor cores)
    the last block of a tile: sum of the parts, bias, residual, activation, cast, store

A gated 1x1 convolution multiplies each value by a factor of its image and channel first.

With a pool behind it, POOL_ROWS rows of a tile are the pixels of one window (the last ones are
empty if the window has fewer), and one row is stored for them.

Weights are packed [R*S*C, OC] (layout "kn") or [OC, R*S*C] ("nk"), C per group.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import finish, pool_rows
from tvmscope.cuda.templates.launch import hold, prefetch, release, wait
from tvmscope.cuda.templates.tiles import product, share_part, sum_parts, tile_of


@triton.jit
def conv2d(
    x, gate, w, bias, residual, y, workspace, counters,
    N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OC: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DILATE_H: tl.constexpr, DILATE_W: tl.constexpr, PADDED: tl.constexpr,
    X_PITCH: tl.constexpr, X_OFFSET: tl.constexpr, Y_PITCH: tl.constexpr, Y_OFFSET: tl.constexpr,
    Z_PITCH: tl.constexpr, Z_OFFSET: tl.constexpr,
    POOL: tl.constexpr, POOL_R: tl.constexpr, POOL_S: tl.constexpr, POOL_ROWS: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, PRECISION: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, SPLIT: tl.constexpr,
    GROUP: tl.constexpr, KN: tl.constexpr, GATED: tl.constexpr, EARLY: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    M: tl.constexpr = N * (P // POOL_R) * (Q // POOL_S) * POOL_ROWS
    K: tl.constexpr = R * S * C  # C and OC are those of one group
    TILES_K: tl.constexpr = (K + TILE_K - 1) // TILE_K
    TILES_M: tl.constexpr = (M + TILE_M - 1) // TILE_M
    TILES_N: tl.constexpr = (OC + TILE_N - 1) // TILE_N
    EACH: tl.constexpr = (TILES_K + SPLIT - 1) // SPLIT

    # windows that are pixels: the input's rows are the output's
    FLAT: tl.constexpr = R * S * STRIDE_H * STRIDE_W == 1 and not PADDED

    pid = tl.program_id(0)
    part = 0 if SPLIT == 1 else tl.program_id(1)
    tile_m, column = tile_of(pid, TILES_M, G * TILES_N, GROUP)
    g = column // TILES_N
    m = tile_m * TILE_M + tl.arange(0, TILE_M)
    n = (column % TILES_N) * TILE_N + tl.arange(0, TILE_N)  # inside the group
    k = tl.arange(0, TILE_K)
    n_ok = n < OC
    channel = g * OC + n
    if KN:
        w_column = channel
    else:
        w_column = (g * OC + n) * K
    first = part * EACH
    row_bias = tl.zeros((1, TILE_N), tl.float32)
    if BIAS:
        row_bias = tl.load(bias + channel, mask=n_ok, other=0.0)[None, :]
    if PDL > 1:
        # the weights of this block, 128 bytes at a time, while the kernel before still runs
        LINE: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth
        for i in tl.static_range(min(EACH, 8)):
            if KN:
                rows = tl.minimum((first + i) * TILE_K + k, K - 1)
                for line in tl.static_range((TILE_N + LINE - 1) // LINE):
                    start = tl.minimum((column % TILES_N) * TILE_N + line * LINE, OC - 1)
                    prefetch(w + rows * (G * OC) + g * OC + start)
            else:
                rows = (g * OC + tl.minimum(n, OC - 1)) * K
                for line in tl.static_range((TILE_K + LINE - 1) // LINE):
                    start = tl.minimum((first + i) * TILE_K + line * LINE, K - 1)
                    prefetch(w + rows + start)
    wait(PDL)

    # rows past the end are masked: if they repeated the last one, all blocks of the edge would ask
    # one slice of the L2 cache for the same line, which took up to three times as long
    FULL_M: tl.constexpr = M % TILE_M == 0 and POOL_ROWS == POOL_R * POOL_S
    # past the end of one image, a window has left it
    LEAVES: tl.constexpr = N == 1 and PADDED and POOL == "none"
    m_ok = m < M
    pixel = m
    if POOL != "none":
        window = m // POOL_ROWS
        inside = m % POOL_ROWS
        m_ok = m_ok & (inside < POOL_R * POOL_S)
        line = window // (Q // POOL_S)
        column_p = (window - line * (Q // POOL_S)) * POOL_S + inside % POOL_S
        image = line // (P // POOL_R)
        row_p = (line - image * (P // POOL_R)) * POOL_R + inside // POOL_S
        pixel = (image * P + row_p) * Q + column_p
        top = row_p * STRIDE_H - PAD_H
        left = column_p * STRIDE_W - PAD_W
        x_row = ((image * H + top) * W + left) * X_PITCH + (X_OFFSET + g * C)
    elif FLAT:
        top = m * 0
        left = top
        x_row = m * X_PITCH + (X_OFFSET + g * C)
    else:
        row = m // Q
        left = (m - row * Q) * STRIDE_W - PAD_W
        if N == 1:
            top = row * STRIDE_H - PAD_H
            x_row = (top * W + left) * X_PITCH + (X_OFFSET + g * C)
        else:
            image = row // P
            top = (row - image * P) * STRIDE_H - PAD_H
            x_row = ((image * H + top) * W + left) * X_PITCH + (X_OFFSET + g * C)
    z = tl.zeros((TILE_M, TILE_N), tl.float32)
    ok = m_ok[:, None] & n_ok[None, :]
    z_at = pixel[:, None] * Z_PITCH + (Z_OFFSET + channel)[None, :]
    if RESIDUAL != "none" and EARLY:
        early = tl.load(residual + z_at, mask=ok, other=0.0)

    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for i in tl.range(0, EACH):
        tile_k = first + i
        if TILES_K % SPLIT == 0:
            some = True
        else:
            some = tile_k < TILES_K
        e = tile_k * TILE_K + k
        if R * S == 1 and not PADDED:
            a_at = x_row[:, None] + e[None, :]
            if K % TILE_K == 0:
                if FULL_M and TILES_K % SPLIT == 0:
                    a = tl.load(x + a_at)
                elif FULL_M:
                    a = tl.load(x + a_at, mask=some, other=0.0)
                else:
                    a = tl.load(x + a_at, mask=(m_ok & some)[:, None], other=0.0)
            elif FULL_M:
                a = tl.load(x + a_at, mask=(e < K)[None, :], other=0.0)
            else:
                a = tl.load(x + a_at, mask=m_ok[:, None] & (e < K)[None, :], other=0.0)
            if GATED:
                if N == 1:
                    factor = tl.load(gate + e, mask=e < K, other=0.0)[None, :]
                else:
                    of_image = (m // (P * Q))[:, None] * C + e[None, :]
                    of_channel = m_ok[:, None] & (e < K)[None, :]
                    factor = tl.load(gate + of_image, mask=of_channel, other=0.0)
                a = a * factor
        elif C % TILE_K == 0:
            tap = tile_k // (C // TILE_K)
            down = tap // S * DILATE_H
            right = tap % S * DILATE_W
            move = (down * W + right) * X_PITCH + tile_k % (C // TILE_K) * TILE_K
            a_at = x_row[:, None] + (move + k)[None, :]
            if PADDED:
                seen = (top + down >= 0) & (top + down < H)
                seen = seen & (left + right >= 0) & (left + right < W) & some
                if not LEAVES and not FULL_M:
                    seen = seen & m_ok
                a = tl.load(x + a_at, mask=seen[:, None], other=0.0)
            elif not FULL_M:
                a = tl.load(x + a_at, mask=(m_ok & some)[:, None], other=0.0)
            elif TILES_K % SPLIT == 0:
                a = tl.load(x + a_at)
            else:
                a = tl.load(x + a_at, mask=some, other=0.0)
        else:
            tap = e // C
            down = tap // S * DILATE_H
            right = tap % S * DILATE_W
            move = (down * W + right) * X_PITCH + e % C
            a_at = x_row[:, None] + move[None, :]
            seen = (e < K)[None, :]
            if not FULL_M and not LEAVES:
                seen = seen & m_ok[:, None]
            if PADDED:
                seen_row = top[:, None] + down[None, :]
                seen_col = left[:, None] + right[None, :]
                seen = seen & (seen_row >= 0) & (seen_row < H)
                seen = seen & (seen_col >= 0) & (seen_col < W)
            a = tl.load(x + a_at, mask=seen, other=0.0)
        if KN:
            b_at = (e * (G * OC))[:, None] + w_column[None, :]
            b_ok = n_ok[None, :]
            if K % TILE_K != 0 or TILES_K % SPLIT != 0:
                b_ok = b_ok & (e < K)[:, None]
            if OC % TILE_N == 0 and K % TILE_K == 0 and TILES_K % SPLIT == 0:
                b = tl.load(w + b_at)
            else:
                b = tl.load(w + b_at, mask=b_ok, other=0.0)
        else:
            b_at = e[:, None] + w_column[None, :]
            FULL_K: tl.constexpr = K % TILE_K == 0 and TILES_K % SPLIT == 0
            if FULL_K and OC % TILE_N == 0:
                b = tl.load(w + b_at)
            elif FULL_K:
                b = tl.load(w + b_at, mask=n_ok[None, :], other=0.0)
            elif OC % TILE_N == 0:
                b = tl.load(w + b_at, mask=(e < K)[:, None], other=0.0)
            else:
                b = tl.load(w + b_at, mask=(e < K)[:, None] & n_ok[None, :], other=0.0)
        total = product(a, b, total, PRECISION)
    release(PDL)

    o = m
    if POOL != "none":
        o = tile_m * (TILE_M // POOL_ROWS) + tl.arange(0, TILE_M // POOL_ROWS)
    y_at = o[:, None] * Y_PITCH + (Y_OFFSET + channel)[None, :]
    y_ok = ok
    if POOL != "none":
        y_ok = (o < M // POOL_ROWS)[:, None] & n_ok[None, :]
    if SPLIT == 1:
        if RESIDUAL != "none":
            if EARLY:
                z = hold(early, EARLY).to(tl.float32)
            else:
                z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
        total = finish(total, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
        result = pool_rows(total, m_ok, POOL, POOL_R * POOL_S, POOL_ROWS)
        tl.store(y + y_at, result.to(y.dtype.element_ty), mask=y_ok)
    else:
        if share_part(total, workspace, counters, pid, part, TILE_M, TILE_N, SPLIT):
            if RESIDUAL != "none" and not EARLY:
                z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
            total = sum_parts(workspace, counters, pid, TILE_M, TILE_N, SPLIT)
            total = finish(total, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
            result = pool_rows(total, m_ok, POOL, POOL_R * POOL_S, POOL_ROWS)
            tl.store(y + y_at, result.to(y.dtype.element_ty), mask=y_ok)
