"""Runs convolution networks in NHWC from end to end, which tensor cores need.

A convolution is computed on the permuted input and its result permuted back. Operators that treat
channels alike (elementwise ones, pooling, concatenation, reductions over pixels) move the
permutation after themselves. Two permutations that meet cancel; only the graph's edges keep one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.graph.elementwise import BINARY, UNARY
from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.rewrites.cuda import nhwc_moves, nhwc_norms
from tvmscope.compiler.rewrites.cuda.nhwc_twins import (
    TO_NHWC,
    back,
    operands,
    to_nhwc,
    twin,
)
from tvmscope.compiler.units.graph import constant, name_of

SEVERAL = (
    *BINARY, "where", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
)  # fmt: skip
POOLS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d")
REDUCTIONS = ("mean", "sum", "max", "min")
ALONG = ("nn.softmax", "nn.log_softmax")
_POOL_ATTRIBUTES = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad",
                    "output_size")  # fmt: skip
_RESIZE_ATTRIBUTES = ("roi", "method", "coordinate_transformation_mode", "rounding_method",
                      "cubic_alpha", "cubic_exclude", "extrapolation_value",
                      "out_dtype")  # fmt: skip


def nhwc() -> tvm.transform.Pass:
    """Return the pass."""
    handlers: dict[str, Handler] = {"relax.nn.conv2d": _conv2d}
    handlers |= {f"relax.{name}": _unary for name in UNARY}
    handlers |= {f"relax.{name}": _several for name in SEVERAL}
    handlers |= {f"relax.{name}": _pool for name in POOLS}
    handlers |= {f"relax.{name}": _reduction for name in REDUCTIONS}
    handlers |= {f"relax.{name}": _along for name in ALONG}
    handlers |= {
        "relax.concat": _concat,
        "relax.image.resize2d": _resize,
        "relax.nn.prelu": _prelu,
        "relax.matmul": _matmul,
        "relax.reshape": _reshape,
    }
    steps = [
        rewrite_calls("SplitSlices", {"relax.split": nhwc_moves.split}),
        relax.transform.CanonicalizeBindings(),
        rewrite_calls("Nhwc", {**nhwc_moves.HANDLERS, **nhwc_norms.HANDLERS, **handlers}),
        # several convolutions may have permuted the same value
        relax.transform.EliminateCommonSubexpr(),
    ]
    return tvm.transform.Sequential(steps, name="Nhwc")


def _conv2d(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    data, weight = call.args
    attrs = call.attrs
    given = (str(attrs.data_layout), str(attrs.kernel_layout))
    if given != ("NCHW", "OIHW") or not isinstance(weight, GenericConst):
        return None
    image = twin(rewriter, data)
    if image is None:
        image = rewriter.emit(to_nhwc(data))
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
    return back(rewriter, result)


def _unary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None:
        return None
    return back(rewriter, relax.Call(call.op, [image, *call.args[1:]], call.attrs))


def _several(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite an elementwise operator of several operands."""
    images = operands(rewriter, call.args)
    return None if images is None else back(rewriter, relax.Call(call.op, images, call.attrs))


def _prelu(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None or int(call.attrs.axis) % 4 != 1:
        return None
    return back(rewriter, relax.op.nn.prelu(image, call.args[1], TO_NHWC.index(1)))


def _pool(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None or str(call.attrs.layout) != "NCHW":
        return None
    if name_of(call) == "nn.adaptive_avg_pool2d":
        plain = _plain_average(image, call)
        if plain is not None:
            return back(rewriter, plain)
    build = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    given = _given(call, _POOL_ATTRIBUTES)
    return back(rewriter, build(image, **given, layout="NHWC", out_layout="NHWC"))


def _plain_average(image: relax.Expr, call: relax.Call) -> relax.Expr | None:
    """Return an adaptive average of equal windows as one of fixed windows; None if they differ."""
    before, after = static_shape(image), static_shape(call)
    if before is None or after is None or before[1] % after[2] or before[2] % after[3]:
        return None
    window = (before[1] // after[2], before[2] // after[3])
    if window == (1, 1):
        return image
    return relax.op.nn.avg_pool2d(image, window, window, layout="NHWC", out_layout="NHWC")


def _given(call: relax.Call, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(call.attrs, name) for name in names if hasattr(call.attrs, name)}


def _reduction(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None or call.attrs.axis is None:
        return None
    axes = sorted(int(a) % 4 for a in call.attrs.axis)
    kept = bool(call.attrs.keepdims)
    build: Callable[..., relax.Call] = getattr(relax.op, name_of(call))
    moved = [TO_NHWC.index(a) for a in axes]
    if kept:
        return back(rewriter, build(image, moved, keepdims=True))
    left = [a for a in TO_NHWC if a not in axes]
    if left != sorted(left):
        return None  # the remaining axes would be in another order
    return build(image, moved, keepdims=False)


def _along(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a softmax along one axis."""
    image = twin(rewriter, call.args[0])
    if image is None:
        return None
    build: Callable[..., relax.Call] = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    return back(rewriter, build(image, TO_NHWC.index(int(call.attrs.axis) % 4)))


def _concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
    images = operands(rewriter, fields) if fields and call.attrs.axis is not None else None
    if images is None:
        return None
    axis = TO_NHWC.index(int(call.attrs.axis) % 4)
    return back(rewriter, relax.op.concat(images, axis))


def _resize(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = twin(rewriter, call.args[0])
    if image is None or str(call.attrs.layout) != "NCHW":
        return None
    given = _given(call, _RESIZE_ATTRIBUTES)
    given["roi"] = [float(r) for r in given["roi"]]
    return back(rewriter, relax.op.image.resize2d(image, call.args[1], layout="NHWC", **given))


def _reshape(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    norm = nhwc_norms.of_rows(rewriter, call)
    return nhwc_moves.reshape(rewriter, call) if norm is None else norm


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite the product of flattened images with a weight, whose rows take the new order."""
    flat, weight = bound_call(rewriter, call.args[0], "reshape"), constant(call.args[1])
    image = twin(rewriter, flat.args[0]) if flat is not None else None
    shape = static_shape(flat.args[0]) if flat is not None else None
    if image is None or shape is None or weight is None or weight.ndim != 2:
        return None
    if static_shape(call.args[0]) != (shape[0], weight.shape[0]):
        return None
    rows = weight.reshape(*shape[1:], -1).transpose(1, 2, 0, 3).reshape(weight.shape)
    data = rewriter.emit(relax.op.reshape(image, (shape[0], weight.shape[0])))
    return relax.op.matmul(data, relax.const(np.ascontiguousarray(rows)), call.attrs.out_dtype)
