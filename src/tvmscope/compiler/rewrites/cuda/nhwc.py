"""Runs convolution networks in NHWC from end to end, which tensor cores need.

A convolution is computed on the permuted input and its result permuted back. Operators that treat
channels alike (elementwise ones, pooling, concatenation, reductions over pixels) move the
permutation after themselves. Two permutations that meet cancel; only the graph's edges keep one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    is_scalar,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.units.graph import name_of

TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)
UNARY = (
    "nn.relu", "nn.relu6", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.leakyrelu", "sigmoid",
    "tanh", "exp", "log", "sqrt", "rsqrt", "negative", "abs", "erf", "clip", "astype", "square",
    "floor", "ceil", "round", "nn.dropout",
)  # fmt: skip
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
REDUCTIONS = ("mean", "sum", "max", "min")
_POOL_ATTRIBUTES = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad",
                    "output_size")  # fmt: skip
_RESIZE_ATTRIBUTES = ("roi", "method", "coordinate_transformation_mode", "rounding_method",
                      "cubic_alpha", "cubic_exclude", "extrapolation_value",
                      "out_dtype")  # fmt: skip


def nhwc() -> tvm.transform.Pass:
    """Return the pass."""
    handlers: dict[str, Handler] = {"relax.nn.conv2d": _conv2d}
    handlers |= {f"relax.{name}": _unary for name in UNARY}
    handlers |= {f"relax.{name}": _binary for name in BINARY}
    handlers |= {f"relax.{name}": _pool for name in POOLS}
    handlers |= {f"relax.{name}": _reduction for name in REDUCTIONS}
    handlers |= {
        "relax.concat": _concat,
        "relax.image.resize2d": _resize,
        "relax.nn.pad": _pad,
        "relax.strided_slice": _slice,
        "relax.reshape": _reshape,
        "relax.permute_dims": _permute,
    }
    steps = [
        rewrite_calls("SplitSlices", {"relax.split": _split}),
        relax.transform.CanonicalizeBindings(),
        rewrite_calls("Nhwc", handlers),
    ]
    return tvm.transform.Sequential(steps, name="Nhwc")


def _split(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a split as slices, each of which can move a permutation after itself."""
    shape, given = static_shape(call.args[0]), call.attrs.indices_or_sections
    if shape is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    size = shape[axis]
    if isinstance(given, int):
        edges = [size * i // given for i in range(given + 1)]
    else:
        edges = [0, *(int(i) for i in given), size]
    parts = [
        rewriter.emit(
            relax.op.strided_slice(call.args[0], [axis], [low], [high], assume_inbound=False)
        )
        for low, high in itertools.pairwise(edges)
    ]
    return relax.Tuple(parts)


def _twin(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the NHWC tensor whose permutation is `value`."""
    call = bound_call(rewriter, value, "permute_dims")
    if call is not None and _axes(call) == TO_NCHW:
        return call.args[0]
    return None


def _axes(call: relax.Call) -> tuple[int, ...]:
    rank = len(static_shape(call) or ())
    axes = call.attrs.axes
    return tuple(int(a) for a in axes) if axes is not None else tuple(reversed(range(rank)))


def _back(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """Permute `value`, which is NHWC, to the layout of the rest of the graph."""
    return relax.op.permute_dims(rewriter.emit(value), TO_NCHW)


def _conv2d(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    data, weight = call.args
    attrs = call.attrs
    given = (str(attrs.data_layout), str(attrs.kernel_layout))
    if given != ("NCHW", "OIHW") or not isinstance(weight, GenericConst):
        return None
    image = _twin(rewriter, data)
    if image is None:
        image = rewriter.emit(_to_nhwc(data))
    packed = relax.const(np.ascontiguousarray(weight.value.numpy().transpose(0, 2, 3, 1)))
    result = relax.op.nn.conv2d(
        image,
        packed,
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
        data_layout="NHWC",
        kernel_layout="OHWI",
        out_layout="NHWC",
        out_dtype=attrs.out_dtype,
    )
    return _back(rewriter, result)


def _to_nhwc(data: relax.Expr) -> relax.Expr:
    shape = static_shape(data)
    if shape is not None and (shape[1] == 1 or shape[2] == shape[3] == 1):
        return relax.op.reshape(data, tuple(shape[a] for a in TO_NHWC))  # the order is the same
    return relax.op.permute_dims(data, TO_NHWC)


def _unary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None:
        return None
    return _back(rewriter, relax.Call(call.op, [image, *call.args[1:]], call.attrs))


def _binary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    args = [v for a in call.args if (v := _operand(rewriter, a)) is not None]
    if len(args) < len(call.args) or all(_twin(rewriter, a) is None for a in call.args):
        return None
    return _back(rewriter, relax.Call(call.op, args, call.attrs))


def _operand(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return an operand for NHWC; None if it would need its own permutation."""
    if is_scalar(value):
        return value
    if isinstance(value, GenericConst):
        array = value.value.numpy()
        array = array.reshape((1,) * (4 - array.ndim) + array.shape)
        return relax.const(np.ascontiguousarray(array.transpose(TO_NHWC)))
    return _twin(rewriter, value)


def _pool(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None or str(call.attrs.layout) != "NCHW":
        return None
    build = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    given = _given(call, _POOL_ATTRIBUTES)
    return _back(rewriter, build(image, **given, layout="NHWC", out_layout="NHWC"))


def _given(call: relax.Call, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(call.attrs, name) for name in names if hasattr(call.attrs, name)}


def _reduction(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None or call.attrs.axis is None:
        return None
    axes = sorted(int(a) % 4 for a in call.attrs.axis)
    kept = bool(call.attrs.keepdims)
    build: Callable[..., relax.Call] = getattr(relax.op, name_of(call))
    moved = [TO_NHWC.index(a) for a in axes]
    if kept:
        return _back(rewriter, build(image, moved, keepdims=True))
    left = [a for a in TO_NHWC if a not in axes]
    if left != sorted(left):
        return None  # the remaining axes would be in another order
    return build(image, moved, keepdims=False)


def _concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
    images = [v for field in fields if (v := _operand(rewriter, field)) is not None]
    twins = [_twin(rewriter, field) for field in fields]
    if not images or len(images) < len(fields) or all(t is None for t in twins):
        return None
    axis = TO_NHWC.index(int(call.attrs.axis) % 4)
    return _back(rewriter, relax.op.concat(images, axis))


def _resize(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None or str(call.attrs.layout) != "NCHW":
        return None
    given = _given(call, _RESIZE_ATTRIBUTES)
    given["roi"] = [float(r) for r in given["roi"]]
    return _back(rewriter, relax.op.image.resize2d(image, call.args[1], layout="NHWC", **given))


def _pad(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None:
        return None
    width = [int(w) for w in call.attrs.pad_width]
    pairs = [width[2 * a : 2 * a + 2] for a in TO_NHWC]
    value = float(call.attrs.pad_value)
    flat = [w for pair in pairs for w in pair]
    return _back(rewriter, relax.op.nn.pad(image, flat, str(call.attrs.pad_mode), value))


def _slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _twin(rewriter, call.args[0])
    if image is None or len(call.args) < 4:
        return None
    axes = _numbers(call.args[1])
    if axes is None:
        return None
    moved = [TO_NHWC.index(a % 4) for a in axes]
    rest = [list(a.fields) for a in call.args[2:] if isinstance(a, relax.Tuple)]
    if len(rest) < len(call.args) - 2:
        return None
    begin, end, *strides = rest
    sliced = relax.op.strided_slice(image, moved, begin, end, strides[0] if strides else None)
    return _back(rewriter, sliced)


def _numbers(value: relax.Expr) -> list[int] | None:
    fields: Sequence[Any] = value.fields if isinstance(value, relax.Tuple) else ()
    found = [int(f.value) for f in fields if isinstance(f, tvm.tirx.IntImm)]
    return found if found and len(found) == len(fields) else None


def _reshape(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a reshape of single pixels or single channels: the permutation does not affect it."""
    image = _twin(rewriter, call.args[0])
    shape = static_shape(call.args[0])
    if image is None or shape is None or not (shape[1] == 1 or shape[2] == shape[3] == 1):
        return None
    return relax.op.reshape(image, call.args[1])


def _permute(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Merge two permutations into one, or none."""
    inner = bound_call(rewriter, call.args[0], "permute_dims")
    if inner is None:
        return None
    first, second = _axes(inner), _axes(call)
    both = tuple(first[a] for a in second)
    if both == tuple(range(len(both))):
        return inner.args[0]
    return relax.op.permute_dims(inner.args[0], both)
