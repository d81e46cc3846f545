"""Attention in one kernel: scores are never stored, softmax is corrected as keys come by.

    for each batch, head and TILE_M queries:
        for TILE_N keys:  scores, mask, running maximum and sum, values (tensor cores)
        divide by the sum, store

A query that sees no key at all gives zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tvmscope.cuda.templates.launch import release, wait
from tvmscope.cuda.templates.tiles import product


@triton.jit
def attention(
    q, k, v, mask, y,
    HEADS: tl.constexpr, SHARED: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, DIM_V: tl.constexpr,
    SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
    Q_BATCH: tl.constexpr, Q_HEAD: tl.constexpr, Q_ROW: tl.constexpr, Q_OFFSET: tl.constexpr,
    K_BATCH: tl.constexpr, K_HEAD: tl.constexpr, K_ROW: tl.constexpr, K_OFFSET: tl.constexpr,
    V_BATCH: tl.constexpr, V_HEAD: tl.constexpr, V_ROW: tl.constexpr, V_OFFSET: tl.constexpr,
    Y_BATCH: tl.constexpr, Y_HEAD: tl.constexpr, Y_ROW: tl.constexpr, Y_OFFSET: tl.constexpr,
    MASK_BATCHES: tl.constexpr, MASK_BATCH: tl.constexpr, MASK_HEAD: tl.constexpr,
    MASK_ROW: tl.constexpr,
    PRECISION: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_D: tl.constexpr,
    TILE_V: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    LOG2_E: tl.constexpr = 1.4426950408889634
    tile = tl.program_id(0)
    batch = tl.program_id(1) // HEADS
    head = tl.program_id(1) % HEADS
    m = tile * TILE_M + tl.arange(0, TILE_M)
    n = tl.arange(0, TILE_N)
    d = tl.arange(0, TILE_D)
    dv = tl.arange(0, TILE_V)
    # rows past the end are masked: blocks that repeat the last one wait for the same cache line
    FULL_M: tl.constexpr = QUERIES % TILE_M == 0
    FULL_N: tl.constexpr = KEYS % TILE_N == 0
    row_ok = m < QUERIES
    q_at = q + (batch * Q_BATCH + head * Q_HEAD + Q_OFFSET) + m[:, None] * Q_ROW + d[None, :]
    k_at = k + (batch * K_BATCH + head // SHARED * K_HEAD + K_OFFSET)
    v_at = v + (batch * V_BATCH + head // SHARED * V_HEAD + V_OFFSET)
    wait(PDL)
    if DIM == TILE_D and FULL_M:
        query = tl.load(q_at)
    else:
        query = tl.load(q_at, mask=row_ok[:, None] & (d < DIM)[None, :], other=0.0)

    top = tl.full((TILE_M,), float("-inf"), tl.float32)
    sums = tl.zeros((TILE_M,), tl.float32)
    total = tl.zeros((TILE_M, TILE_V), tl.float32)
    if CAUSAL:
        # the last query of the tile sees the most keys
        end = min(KEYS, max(0, (tile + 1) * TILE_M + (KEYS - QUERIES)))
    else:
        end = KEYS
    for start in tl.range(0, end, TILE_N):
        at = start + n
        seen = at < KEYS
        key_at = k_at + at[None, :] * K_ROW + d[:, None]
        value_at = v_at + at[:, None] * V_ROW + dv[None, :]
        if DIM == TILE_D and FULL_N:
            key = tl.load(key_at)
        else:
            key = tl.load(key_at, mask=seen[None, :] & (d < DIM)[:, None], other=0.0)
        scores = product(query, key, None, PRECISION) * (SCALE * LOG2_E)
        if MASKED:
            of_batch = batch % MASK_BATCHES if MASK_BATCHES else batch
            place = of_batch * MASK_BATCH + head * MASK_HEAD + m[:, None] * MASK_ROW + at[None, :]
            there = row_ok[:, None] & seen[None, :]
            scores += tl.load(mask + place, mask=there, other=0.0).to(tl.float32) * LOG2_E
        if CAUSAL:
            ok = at[None, :] <= m[:, None] + (KEYS - QUERIES)
            scores = tl.where(ok & seen[None, :], scores, float("-inf"))
        elif not FULL_N:
            scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        correct = tl.exp2(top - base)
        sums = sums * correct + tl.sum(weights, 1)
        total = total * correct[:, None]
        if DIM_V == TILE_V and FULL_N:
            value = tl.load(value_at)
        else:
            value = tl.load(value_at, mask=seen[:, None] & (dv < DIM_V)[None, :], other=0.0)
        total = product(weights.to(value.dtype), value, total, PRECISION)
        top = higher
    release(PDL)
    total = total / tl.where(sums == 0.0, 1.0, sums)[:, None]
    y_at = y + (batch * Y_BATCH + head * Y_HEAD + Y_OFFSET) + m[:, None] * Y_ROW + dv[None, :]
    ok = row_ok[:, None] & (dv < DIM_V)[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=ok)
