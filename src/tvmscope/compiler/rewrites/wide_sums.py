"""Sums half-precision products and averages in float32, then rounds the result once.

TVM sums in the type of the result. Eleven bits stop growing at 2048 times the addend: the average
of a 112x112 image of ones comes out as 0.16, and a convolution over 9216 products is off by 3 %.

    avg_pool(x16)      -> astype(avg_pool(astype(x16, float32)), float16)
    conv(x16, w16)     -> astype(conv(x16, w16, out_dtype=float32), float16)   on CPUs
    matmul(x16, y16)   -> likewise
    softmax(x16), sum(x16), mean(x16) -> as avg_pool                           on CPUs

bfloat16 likewise. A model is summed so whether it is narrow by itself or made so by an option.
GPUs keep their products: the schedules there choose the accumulator of the matrix units.
"""

from __future__ import annotations

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    operator_name,
    rewrite_calls,
    static_shape,
)
from tvmscope.core.target import Target

AVERAGES = tuple(
    f"relax.nn.{name}{n}d" for name in ("avg_pool", "adaptive_avg_pool") for n in (1, 2, 3)
)
ROWS = ("relax.nn.softmax", "relax.nn.log_softmax", "relax.sum", "relax.mean", "relax.variance")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose")
_ATTRIBUTES = ("strides", "padding", "output_padding", "dilation", "groups", "data_layout",
               "kernel_layout", "out_layout")  # fmt: skip


def _narrow(value: relax.Expr) -> str | None:
    dtype = str(getattr(value.ty, "dtype", ""))
    return dtype if dtype in ("float16", "bfloat16") else None


def _in_float32(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    narrow = _narrow(call)
    if narrow is None:
        return None
    wide = rewriter.emit(relax.op.astype(call.args[0], "float32"))
    result = rewriter.emit(relax.Call(call.op, [wide], call.attrs))
    return relax.op.astype(result, narrow)


def _average(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    adaptive = "adaptive" in operator_name(call)
    if adaptive and static_shape(call) == static_shape(call.args[0]) is not None:
        return call.args[0]  # averages of single values
    return _in_float32(rewriter, call)


def _convolution(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    narrow = _narrow(call)
    if narrow is None:
        return None
    build = getattr(relax.op.nn, operator_name(call).removeprefix("relax.nn."))
    given = {a: getattr(call.attrs, a) for a in _ATTRIBUTES if hasattr(call.attrs, a)}
    result = rewriter.emit(build(*call.args, **given, out_dtype="float32"))
    return relax.op.astype(result, narrow)


def _matmul(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    narrow = _narrow(call)
    if narrow is None:
        return None
    left, right = call.args
    result = rewriter.emit(relax.op.matmul(left, right, out_dtype="float32"))
    return relax.op.astype(result, narrow)


def wide_sums(target: Target) -> tvm.transform.Pass:
    """The pass for `target`."""
    handlers: dict[str, Handler] = dict.fromkeys(AVERAGES, _average)
    if target.device == "cpu":
        handlers |= {f"relax.nn.{name}": _convolution for name in CONVOLUTIONS}
        handlers |= dict.fromkeys(ROWS, _in_float32)
        handlers["relax.matmul"] = _matmul
    return rewrite_calls("WideSums", handlers)
