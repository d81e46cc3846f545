"""Reads a convolution with constant weights, chooses its kernel, and packs its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.ir.expr import GenericConst

from tvmscope.compiler import blocked_ops, tiles, winograd
from tvmscope.compiler.blocked_ops import Window
from tvmscope.compiler.packing import Array, merge_groups, pack_dense, pack_depthwise
from tvmscope.compiler.passes.rewrite import OUT_ELEMENTWISE_FUSABLE, static_shape
from tvmscope.core.target import Target


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """What the graph asks for."""

    kernel: Array
    """OIHW"""
    window: Window
    groups: int
    inputs: int
    result: tuple[int, ...]
    """NCHW"""
    dtype: str
    """Of the result, in which it is summed."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A tensor expression of data and weight, and the weight in its order."""

    name: str
    compute: Callable[..., te.Tensor]
    weight: Array
    takes_blocks: bool = True
    attrs: dict[str, Any] = field(default_factory=dict)
    """Of the function that it becomes."""


def read(call: relax.Call) -> Convolution | None:
    """What a call of `relax.nn.conv2d` asks for; None in other layouts or with computed weights."""
    attrs, (data, weight) = call.attrs, call.args
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    given, result = static_shape(data), static_shape(call)
    if not isinstance(weight, GenericConst) or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    if given is None or result is None:
        return None
    padding = tuple(int(p) for p in attrs.padding)
    return Convolution(
        kernel=weight.value.numpy(),
        window=Window(_pair(attrs.strides), (*padding, *padding)[:4], _pair(attrs.dilation)),
        groups=int(attrs.groups),
        inputs=given[1],
        result=result,
        dtype=str(call.ty.dtype),
    )


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    first, *rest = (int(v) for v in values)
    return first, (rest[0] if rest else first)


def choose(conv: Convolution, target: Target, is_blocked: bool, *, winograd: bool) -> Kernel | None:
    """The kernel that is predicted to be fastest; None where there is none for it."""
    if conv.groups == 1:
        fast = _winograd(conv, target) if winograd and is_blocked else None
        return fast or _dense(conv, target, is_blocked)
    if conv.groups == conv.inputs == conv.result[1]:
        return _depthwise(conv, target)
    return _grouped(conv, target)


def _common(conv: Convolution, target: Target) -> dict[str, Any]:
    return {
        "window": conv.window,
        "computed_width": tiles.padded(conv.result[3], target),
        "out_dtype": conv.dtype,
    }


def _dense(conv: Convolution, target: Target, is_blocked: bool) -> Kernel:
    return Kernel(
        name="conv2d",
        compute=partial(blocked_ops.conv2d, channels=conv.inputs, **_common(conv, target)),
        weight=pack_dense(conv.kernel, blocked_input=is_blocked),
        takes_blocks=is_blocked,
    )


def _depthwise(conv: Convolution, target: Target) -> Kernel:
    return Kernel(
        name="depthwise_conv2d",
        compute=partial(blocked_ops.depthwise_conv2d, **_common(conv, target)),
        weight=pack_depthwise(conv.kernel),
    )


def _grouped(conv: Convolution, target: Target) -> Kernel | None:
    merged = merge_groups(conv.kernel, conv.groups)
    if merged is None:
        return None
    kernel, groups = merged
    sizes = {"channels": kernel.shape[1], "groups": groups}
    return Kernel(
        name="grouped_conv2d",
        compute=partial(blocked_ops.conv2d, **sizes, **_common(conv, target)),
        weight=pack_dense(kernel, blocked_input=True),
    )


def _winograd(conv: Convolution, target: Target) -> Kernel | None:
    batch, _, rows, columns = conv.result
    if conv.kernel.shape[2:] != (3, 3) or conv.dtype != "float32":
        return None
    if conv.kernel.dtype != np.float32:
        return None  # the transforms magnify the rounding of half precision
    if conv.window.strides != (1, 1) or conv.window.dilation != (1, 1):
        return None
    transform = winograd.best(batch, rows, columns, target)
    if transform is None:
        return None
    return Kernel(
        name="winograd_conv2d",
        compute=partial(winograd.conv2d, window=conv.window, transform=transform),
        weight=winograd.pack_weight(conv.kernel, transform),
        # Its several stages hide from TVM's analysis that elementwise operators may follow.
        attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
    )
