"""Attention (opset 23 on) and rotary embeddings, written out as products and softmaxes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from tvmscope.compiler.frontends.onnx.converters.node import (
    Converter,
    Node,
    const,
    dtype_of,
    shape_of,
)
from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.messages import msg

_AFTER_SOFTMAX = 3


def _attention(node: Node) -> relax.Expr:
    """Convert Attention with masks, caches and grouped heads; fully masked rows are zero."""
    query, key, value = (_by_head(node, i) for i in range(3))
    rank, narrow = len(shape_of(node.input(0))), dtype_of(query)
    dtype = "float32" if narrow in ("float16", "bfloat16") else narrow
    past_key, past_value = node.given(4), node.given(5)
    past = 0
    if past_key is not None and past_value is not None:
        past = shape_of(past_key)[2]
        key = node.emit(op.concat([past_key, key], 2))
        value = node.emit(op.concat([past_value, value], 2))
    present = [key, value]
    groups = shape_of(query)[1] // shape_of(key)[1]
    if groups > 1:
        key, value = (node.emit(op.repeat(x, groups, 1)) for x in (key, value))
    query, key, value = (_as(node, x, dtype) for x in (query, key, value))
    root = const(np.sqrt(node.get("scale", shape_of(query)[3] ** -0.5)), dtype)
    key = node.emit(op.permute_dims(node.emit(op.multiply(key, root)), [0, 1, 3, 2]))
    raw = node.emit(op.matmul(node.emit(op.multiply(query, root)), key))
    stages = _scores(node, raw, past)
    result = node.emit(op.matmul(stages[_AFTER_SOFTMAX], value))
    if rank == 3:
        batch, heads, length, size = shape_of(result)
        moved = node.emit(op.permute_dims(result, [0, 2, 1, 3]))
        result = node.emit(op.reshape(moved, (batch, length, heads * size)))
    shown = stages[int(node.get("qk_matmul_output_mode", 0))]
    results = [_as(node, result, narrow), *present, _as(node, shown, narrow)]
    return relax.Tuple(results[: max(node.results, 1)])


def _as(node: Node, value: relax.Expr, dtype: str) -> relax.Expr:
    """Cast the value if needed: sums of half precision are formed in float32."""
    return value if dtype_of(value) == dtype else node.emit(op.astype(value, dtype))


def _by_head(node: Node, index: int) -> relax.Expr:
    """Return an input as batch x heads x length x size."""
    tensor = node.input(index)
    shape = shape_of(tensor)
    if len(shape) == 4:
        return tensor
    heads = node.get("q_num_heads" if index == 0 else "kv_num_heads", None)
    if heads is None or len(shape) != 3:
        raise Unsupported(msg("an attention that does not say how many heads it has"))
    split = op.reshape(tensor, (shape[0], shape[1], heads, shape[2] // heads))
    return node.emit(op.permute_dims(node.emit(split), [0, 2, 1, 3]))


def _scores(node: Node, raw: relax.Expr, past: int) -> list[relax.Expr]:
    """Return the scores: raw, after the cap, after the mask, after the softmax."""
    cap, dtype = float(node.get("softcap", 0.0)), dtype_of(raw)
    bias = _bias(node, raw, past)

    def capped(x: relax.Expr) -> relax.Expr:
        if cap <= 0:
            return x
        scaled = node.emit(op.divide(x, const(cap, dtype)))
        return node.emit(op.multiply(node.emit(op.tanh(scaled)), const(cap, dtype)))

    def masked(x: relax.Expr) -> relax.Expr:
        return x if bias is None else node.emit(op.add(x, bias))

    first = capped(raw)
    second = masked(first)
    return [raw, first, second, _softmax(node, second, bias)]


def _softmax(node: Node, scores: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    dtype = dtype_of(scores)
    wide = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}.get(
        int(node.get("softmax_precision", 0)), dtype
    )
    held = scores if wide == dtype else node.emit(op.astype(scores, wide))
    result = node.emit(op.nn.softmax(held, -1))
    if bias is not None:  # a row without any key is zero, not the NaN of inf - inf
        open_ = node.emit(op.greater(bias, const(-np.inf, dtype_of(bias))))
        number = node.emit(op.max(node.emit(op.astype(open_, "int8")), -1, keepdims=True))
        empty = node.emit(op.equal(number, const(0, "int8")))
        result = node.emit(op.where(empty, const(0, wide), result))
    return result if wide == dtype else node.emit(op.astype(result, dtype))


def _bias(node: Node, raw: relax.Expr, past: int) -> relax.Expr | None:
    """Return the addend of the scores: the mask, the causal limit, windows, padded keys."""
    batch, _, queries, keys = shape_of(raw)
    dtype = dtype_of(raw)
    parts: list[relax.Expr] = []
    if node.given(3) is not None:
        parts.append(_mask(node, node.input(3), dtype, keys))
    valid = node.given(6)
    left, right = int(node.get("left_window_size", -1)), int(node.get("right_window_size", -1))
    causal = bool(node.get("is_causal", 0))
    if causal:
        right = 0 if right < 0 else min(right, 0)
    if left >= 0 or right >= 0:
        distance = np.arange(queries)[:, None] - np.arange(keys)[None, :]  # query minus key
        offset = const(past, "int64")
        if valid is not None:
            count = node.emit(op.reshape(node.emit(op.astype(valid, "int64")), (batch, 1, 1, 1)))
            offset = node.emit(op.subtract(count, const(queries, "int64")))
        place = node.emit(op.add(const(distance, "int64"), offset))
        if left >= 0:
            parts.append(_allowed(node, op.less_equal(place, const(left, "int64")), dtype))
        if right >= 0:
            parts.append(_allowed(node, op.greater_equal(place, const(-right, "int64")), dtype))
    if valid is not None:
        count = node.emit(op.reshape(node.emit(op.astype(valid, "int64")), (batch, 1, 1, 1)))
        parts.append(_allowed(node, op.less(const(np.arange(keys), "int64"), count), dtype))
    total: relax.Expr | None = None
    for part in parts:
        total = part if total is None else node.emit(op.add(total, part))
    return total


def _allowed(node: Node, condition: relax.Expr, dtype: str) -> relax.Expr:
    held = node.emit(condition) if isinstance(condition, relax.Call) else condition
    return node.emit(op.where(held, const(0, dtype), const(-np.inf, dtype)))


def _mask(node: Node, mask: relax.Expr, dtype: str, keys: int) -> relax.Expr:
    """Return the mask as an addend, with the keys that it does not cover masked."""
    mask = _allowed(node, mask, dtype) if dtype_of(mask) == "bool" else _as(node, mask, dtype)
    missing = keys - shape_of(mask)[-1]
    if missing <= 0:
        return mask
    rest = np.full((*shape_of(mask)[:-1], missing), -np.inf)
    return node.emit(op.concat([mask, const(rest, dtype)], -1))


def _rotary_embedding(node: Node) -> relax.Expr:
    """Rotate pairs of features by the angle of their position."""
    data, cos, sin, ids = node.input(0), node.input(1), node.input(2), node.given(3)
    shape = shape_of(data)
    heads, split = int(node.get("num_heads", 0)), len(shape) == 3
    if split:
        whole = op.reshape(data, (shape[0], shape[1], heads, shape[2] // heads))
        data = node.emit(whole)
    else:
        data = node.emit(op.permute_dims(data, [0, 2, 1, 3]))
    size = shape_of(data)[3]
    turned = int(node.get("rotary_embedding_dim", 0)) or size
    angles = []
    for cache in (cos, sin):
        taken = cache
        if ids is not None:
            taken = node.emit(op.take(cache, ids, axis=0))
        angles.append(node.emit(op.expand_dims(taken, 2)))
    cos, sin = angles
    part = _slice(node, data, 3, 0, turned)
    if node.get("interleaved", 0):
        pairs = node.emit(op.reshape(part, (*shape_of(part)[:-1], turned // 2, 2)))
        first, second = (
            node.emit(op.squeeze(_slice(node, pairs, 4, n, n + 1), [4])) for n in range(2)
        )
    else:
        first = _slice(node, part, 3, 0, turned // 2)
        second = _slice(node, part, 3, turned // 2, turned)
    real = _product_sum(node, op.subtract, (cos, first), (sin, second))
    imaginary = _product_sum(node, op.add, (sin, first), (cos, second))
    if node.get("interleaved", 0):
        both = [node.emit(op.expand_dims(x, 4)) for x in (real, imaginary)]
        result = node.emit(op.reshape(node.emit(op.concat(both, 4)), shape_of(part)))
    else:
        result = node.emit(op.concat([real, imaginary], 3))
    if turned < size:
        result = node.emit(op.concat([result, _slice(node, data, 3, turned, size)], 3))
    if split:
        return node.emit(op.reshape(result, shape))
    return node.emit(op.permute_dims(result, [0, 2, 1, 3]))


def _slice(node: Node, data: relax.Expr, axis: int, start: int, end: int) -> relax.Expr:
    return node.emit(op.strided_slice(data, [axis], [start], [end]))


def _product_sum(
    node: Node, join: Callable[..., relax.Expr], *pairs: tuple[relax.Expr, relax.Expr]
) -> relax.Expr:
    return node.emit(join(*(node.emit(op.multiply(a, b)) for a, b in pairs)))


CONVERTERS: dict[str, Converter] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
}
