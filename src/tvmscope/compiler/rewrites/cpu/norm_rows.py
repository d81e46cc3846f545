"""Rewrites group, instance and layer norms of several axes as layer norms of rows.

    group_norm(x, g, b)      -> reshape(layer_norm(reshape(x, [n * groups, -1]))) * g + b
    instance_norm(x, g, b)   -> the same, with a group for each channel
    layer_norm(x, axes=last) -> reshape(layer_norm(reshape(x, [rows, -1])))

TVM computes the variance of groups and instances as E[x^2] - E[x]^2, which loses all digits where
the mean is large beside the spread. The kernel of rows takes the differences from the mean.
"""

from __future__ import annotations

from math import prod

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import Rewriter, rewrite_calls, static_shape

_op = relax.op


def norm_rows() -> tvm.transform.Pass:
    """Return the pass; norms in other types than float32 and of unknown shapes stay."""
    handlers = {
        "relax.nn.group_norm": _group_norm,
        "relax.nn.instance_norm": _instance_norm,
        "relax.nn.layer_norm": _layer_norm,
    }
    return rewrite_calls("NormRows", handlers)


def _axes(call: relax.Call, rank: int) -> list[int]:
    return sorted(int(axis) % rank for axis in call.attrs.axes)


def _group_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call.args[0])
    if shape is None or int(call.attrs.channel_axis) % len(shape) != 1:
        return None
    if _axes(call, len(shape)) != list(range(2, len(shape))):
        return None
    return _grouped(rewriter, call, shape, int(call.attrs.num_groups))


def _instance_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call.args[0])
    if shape is None or int(call.attrs.channel_axis) % len(shape) != 1:
        return None
    axes = _axes(call, len(shape))
    if shape[0] == 1:  # then including the batch in the axes changes nothing
        axes = [axis for axis in axes if axis]
    if axes != list(range(2, len(shape))):
        return None
    return _grouped(rewriter, call, shape, shape[1])


def _grouped(
    rewriter: Rewriter, call: relax.Call, shape: tuple[int, ...], groups: int
) -> relax.Expr | None:
    data, gain, bias = call.args
    if str(data.ty.dtype) != "float32" or not (call.attrs.center and call.attrs.scale):
        return None
    emit = rewriter.builder_.emit
    length = prod(shape[1:]) // groups
    ones, zeros = (relax.const(np.full(length, v, np.float32), "float32") for v in (1, 0))
    rows = emit(_op.reshape(data, (shape[0] * groups, length)))
    done = emit(_op.nn.layer_norm(rows, ones, zeros, [-1], float(call.attrs.epsilon)))
    along = (shape[1], *[1] * (len(shape) - 2))
    scaled = _op.multiply(emit(_op.reshape(done, shape)), emit(_op.reshape(gain, along)))
    return _op.add(emit(scaled), emit(_op.reshape(bias, along)))


def _layer_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    data, gain, bias = call.args
    shape = static_shape(data)
    if shape is None or str(data.ty.dtype) != "float32":
        return None
    axes = _axes(call, len(shape))
    if len(axes) < 2 or axes != list(range(axes[0], len(shape))):
        return None
    if not (call.attrs.center and call.attrs.scale):
        return None
    emit, length = rewriter.builder_.emit, prod(shape[axes[0] :])
    rows = emit(_op.reshape(data, (prod(shape[: axes[0]]), length)))
    held = [emit(_op.reshape(value, (length,))) for value in (gain, bias)]
    done = _op.nn.layer_norm(rows, held[0], held[1], [-1], float(call.attrs.epsilon))
    return _op.reshape(emit(done), shape)
