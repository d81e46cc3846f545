"""Large matrix products: as many blocks as multiprocessors, each computes tile after tile, and the
tensor memory accelerator loads the operands (sm_90).

    for each of this block's tiles of TILE_M x TILE_N:
        for TILE_K of K:  multiply, add (tensor cores)
        bias, residual, activation, cast, store      (while the next tile's operands are fetched)

The block builds its two descriptors in its own scratch memory; elements outside a matrix are read
as zero. Both operands are contiguous along one axis and have rows of whole 16 bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.epilogue import finish
from tvmscope.cuda.templates.launch import release, wait
from tvmscope.cuda.templates.tiles import product, tile_of


@triton.jit
def persistent(
    x, w, bias, residual, y,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A_M: tl.constexpr, A_OFFSET: tl.constexpr, Y_M: tl.constexpr, Y_OFFSET: tl.constexpr,
    Z_M: tl.constexpr, Z_OFFSET: tl.constexpr, SCALE: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, PRECISION: tl.constexpr, KN: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr,
    BLOCKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    TILES_M: tl.constexpr = (M + TILE_M - 1) // TILE_M
    TILES_N: tl.constexpr = (N + TILE_N - 1) // TILE_N
    TILES_K: tl.constexpr = (K + TILE_K - 1) // TILE_K
    # the kernel before may still read its own descriptors out of the same scratch memory
    wait(PDL)
    left = tl.make_tensor_descriptor(x + A_OFFSET, [M, K], [A_M, 1], [TILE_M, TILE_K])
    if KN:
        right = tl.make_tensor_descriptor(w, [K, N], [N, 1], [TILE_K, TILE_N])
    else:
        right = tl.make_tensor_descriptor(w, [N, K], [K, 1], [TILE_N, TILE_K])
    for pid in tl.range(tl.program_id(0), TILES_M * TILES_N, BLOCKS, flatten=True):
        tile_m, tile_n = tile_of(pid, TILES_M, TILES_N, GROUP)
        total = tl.zeros((TILE_M, TILE_N), tl.float32)
        for i in tl.range(0, TILES_K):
            a = left.load([tile_m * TILE_M, i * TILE_K])
            if KN:
                b = right.load([i * TILE_K, tile_n * TILE_N])
            else:
                b = right.load([tile_n * TILE_N, i * TILE_K]).T
            total = product(a, b, total, PRECISION)
        m = tile_m * TILE_M + tl.arange(0, TILE_M)
        n = tile_n * TILE_N + tl.arange(0, TILE_N)
        ok = (m < M)[:, None] & (n < N)[None, :]
        row_bias = tl.zeros((1, TILE_N), tl.float32)
        if BIAS:
            row_bias = tl.load(bias + n, mask=n < N, other=0.0)[None, :]
        z = tl.zeros((TILE_M, TILE_N), tl.float32)
        if RESIDUAL != "none":
            z_at = m[:, None] * Z_M + (Z_OFFSET + n)[None, :]
            z = tl.load(residual + z_at, mask=ok, other=0.0).to(tl.float32)
        total = finish(total * SCALE, row_bias, z, BIAS, RESIDUAL, KIND, FIRST, SECOND)
        y_at = m[:, None] * Y_M + (Y_OFFSET + n)[None, :]
        tl.store(y + y_at, total.to(y.dtype.element_ty), mask=ok)
    release(PDL)
