"""Norms of groups of channels in NHWC: group norm, instance norm, and both written as rows."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvmscope.compiler.graph.rewrite import Handler, Rewriter, bound_call, static_shape
from tvmscope.compiler.rewrites.cuda.nhwc_twins import back, twin
from tvmscope.compiler.units.graph import constant

_NEUTRAL = {"add": 0.0, "multiply": 1.0}


def _group_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    return _grouped(rewriter, call, int(call.attrs.num_groups))


def _instance_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite an instance norm as a group norm with a group for each channel."""
    shape = static_shape(call.args[0])
    return _grouped(rewriter, call, shape[1]) if shape is not None else None


def _grouped(rewriter: Rewriter, call: relax.Call, groups: int) -> relax.Expr | None:
    (data, gain, bias), attrs, shape = call.args, call.attrs, static_shape(call)
    image = _unflattened(rewriter, data) if len(shape or ()) == 3 else twin(rewriter, data)
    if image is None or shape is None or constant(gain) is None or constant(bias) is None:
        return None  # no generated kernel takes computed weights, and TVM's own is slow in NHWC
    axes = sorted(int(a) % len(shape) for a in attrs.axes)
    if shape[0] == 1:
        axes = [a for a in axes if a]  # the importer may include the batch, which changes nothing
    pixels = list(range(2, len(shape)))
    if int(attrs.channel_axis) != 1 or axes != pixels or not (attrs.center and attrs.scale):
        return None
    normal = relax.op.nn.group_norm(image, gain, bias, groups, 3, [1, 2], float(attrs.epsilon))
    whole = back(rewriter, normal)
    return whole if len(shape) == 4 else relax.op.reshape(rewriter.emit(whole), shape)


def _unflattened(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the NHWC image whose pixels in a row are `value`: [n, c, h * w]."""
    flat, after = bound_call(rewriter, value, "reshape"), static_shape(value)
    if flat is None or after is None or len(after) != 3:
        return None
    before = static_shape(flat.args[0])
    return twin(rewriter, flat.args[0]) if before and before[:2] == after[:2] else None


def of_rows(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite reshape(layer_norm(reshape(image))) whose rows are groups of channels: ONNX's norms
    are imported so, and exported so."""
    after, value = static_shape(call), call.args[0]
    while (before := _unchanged(rewriter, value)) is not None:
        value = before
    norm = bound_call(rewriter, value, "nn.layer_norm")
    if norm is None or not _is_plain(norm):
        return None
    value, rows = norm.args[0], static_shape(norm) or ()
    while (before := _unchanged(rewriter, value)) is not None:
        value = before
    image = twin(rewriter, value)
    if image is None or after is None or after != static_shape(value):
        return None
    n, c, h, w = after
    groups = prod(rows[:-1]) // n
    if not groups or c % groups or rows[-1] != c // groups * h * w:
        return None
    held = [constant(a) for a in norm.args[1:]]
    ones, zeros = (relax.const(np.repeat(a[:1], c)) for a in held if a is not None)
    epsilon = float(norm.attrs.epsilon)
    normal = relax.op.nn.group_norm(image, ones, zeros, groups, 3, [1, 2], epsilon)
    return back(rewriter, normal)


def _unchanged(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the value before a reshape, a sum with zeros or a product with ones."""
    if (moved := bound_call(rewriter, value, "reshape")) is not None:
        return moved.args[0]
    for name, neutral in _NEUTRAL.items():
        call = bound_call(rewriter, value, name)
        if call is None or static_shape(call.args[0]) != static_shape(call):
            continue
        array = constant(call.args[1])
        if array is not None and np.all(array == neutral):
            return call.args[0]
    return None


def _is_plain(norm: relax.Call) -> bool:
    """Whether it is of rows, without weights of its own."""
    shape, (gain, bias) = static_shape(norm) or (), map(constant, norm.args[1:])
    if [int(a) % len(shape) for a in norm.attrs.axes] != [len(shape) - 1]:
        return False
    return gain is not None and bias is not None and bool(np.all(gain == 1) and np.all(bias == 0))


HANDLERS: dict[str, Handler] = {
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
}
