"""Lets a convolution do the zero padding that precedes it.

    conv2d(pad(x, zeros around the image), padding=p)  ->  conv2d(x, padding=p + pad)

Models that came from TensorFlow pad explicitly, since its padding is not symmetric. Padding by
nothing, which window attention writes for images that its windows fit, is dropped.
"""

from __future__ import annotations

from typing import TypeGuard

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.tirx import FloatImm, IntImm

from tvmscope.compiler.graph.rewrite import Rewriter, operator_name, rewrite_calls


def _fold(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    attrs = call.attrs
    pad = rewriter.lookup_binding(call.args[0]) if isinstance(call.args[0], relax.Var) else None
    if attrs.data_layout != "NCHW" or not _is_zero_pad(pad):
        return None
    around = [int(w) for w in pad.attrs.pad_width]
    if len(around) != 8 or any(around[:4]) or min(around) < 0:
        return None
    own = [int(p) for p in attrs.padding]
    top, left, bottom, right = (own * 4)[:4] if len(own) < 4 else own
    return relax.op.nn.conv2d(
        pad.args[0],
        call.args[1],
        strides=attrs.strides,
        padding=[top + around[4], left + around[6], bottom + around[5], right + around[7]],
        dilation=attrs.dilation,
        groups=attrs.groups,
        data_layout=attrs.data_layout,
        kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout,
        out_dtype=attrs.out_dtype,
    )


def _is_zero_pad(value: relax.Expr | None) -> TypeGuard[relax.Call]:
    if not isinstance(value, relax.Call) or operator_name(value) != "relax.nn.pad":
        return False
    return value.attrs.pad_mode == "constant" and _number(value) == 0


def _number(pad: relax.Call) -> float | None:
    """Return the padding value, if it is known."""
    if len(pad.args) > 1:
        given = pad.args[1]
        if isinstance(given, FloatImm | IntImm):
            return float(given.value)
        if isinstance(given, GenericConst) and given.value.numpy().size == 1:
            return float(given.value.numpy().item())
        return None
    return float(pad.attrs.pad_value)


def _drop(_: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Return the value itself where nothing is added around it."""
    return None if any(int(w) for w in call.attrs.pad_width) else call.args[0]


def fold_pads() -> tvm.transform.Pass:
    """Return the pass."""
    return rewrite_calls("FoldPads", {"relax.nn.conv2d": _fold, "relax.nn.pad": _drop})
