"""Reads a convolution with constant weights, chooses its kernel, and packs its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te
from tvm.ir.expr import GenericConst

from tvmscope.compiler.cost import dense_tiles, tiles
from tvmscope.compiler.cost.tiles import CHANNEL_BLOCK
from tvmscope.compiler.graph.rewrite import OUT_ELEMENTWISE_FUSABLE, static_shape
from tvmscope.compiler.kernels import blocked
from tvmscope.compiler.kernels import winograd as fast
from tvmscope.compiler.kernels.blocked import Window
from tvmscope.compiler.kernels.marks import TILE
from tvmscope.compiler.kernels.packing import (
    Array,
    Groups,
    pack_dense,
    pack_depthwise,
    widen_groups,
)
from tvmscope.compiler.kernels.winograd_transforms import BY_NAME
from tvmscope.compiler.tunable.knobs import Knobs, by, int_of, notes, ranked, without
from tvmscope.core.target import Target
from tvmscope.core.tuning import Params

DIRECT = "direct"


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """The convolution that a call in the graph computes."""

    kernel: Array
    """The weights, OIHW."""
    window: Window
    groups: int
    given: tuple[int, ...]
    result: tuple[int, ...]
    """The shapes of data and result, NCHW."""
    dtype: str
    """The type of the result, in which it is summed."""

    @property
    def inputs(self) -> int:
        """The channels of the data."""
        return self.given[1]

    def workload(self, is_blocked: bool) -> str:
        """Return the workload's name in a tuning database."""
        window = self.window
        return (
            f"conv2d {by(self.given)} {by(self.kernel.shape)} stride {by(window.strides)} "
            f"padding {by(window.padding)} dilation {by(window.dilation)} groups {self.groups} "
            f"{self.kernel.dtype}->{self.dtype} {'blocks' if is_blocked else 'plain'}"
        )


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A tensor expression of data and weight, and the weight in its layout."""

    name: str
    compute: Callable[..., te.Tensor]
    weight: Array
    takes_blocks: bool = True
    attrs: dict[str, Any] = field(default_factory=dict)
    """Attributes of the function that it becomes."""


def read(call: relax.Call) -> Convolution | None:
    """Read a call of `relax.nn.conv2d`; None for other layouts or computed weights."""
    attrs, (data, weight) = call.attrs, call.args
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
    given, result = static_shape(data), static_shape(call)
    if not isinstance(weight, GenericConst) or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    if given is None or result is None:
        return None
    padding = [int(p) for p in attrs.padding]
    top, left, bottom, right = (*padding, *padding)[:4]
    return Convolution(
        kernel=weight.value.numpy(),
        window=Window(_pair(attrs.strides), (top, left, bottom, right), _pair(attrs.dilation)),
        groups=int(attrs.groups),
        given=given,
        result=result,
        dtype=str(call.ty.dtype),
    )


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    first, *rest = (int(v) for v in values)
    return first, (rest[0] if rest else first)


def choose(
    conv: Convolution, target: Target, is_blocked: bool, *, winograd: bool, knobs: Knobs
) -> Kernel:
    """Choose the kernel that a record names or that is predicted to be fastest.

    Parameters: `kernel` is `direct`, `winograd2` or `winograd4`; `tile` names a direct kernel's
    register tile, `columns` the width of another's; `share` lets each core take its share of
    Winograd's tiles.
    """
    workload = conv.workload(is_blocked)
    predicted = _predict(conv, target) if is_blocked else None
    chosen, params = _settle(knobs.of(workload), predicted, winograd)
    if chosen != DIRECT:
        return _winograd(conv, target, chosen, params, workload)
    params = without(params, "share")
    if conv.groups == 1:
        return _dense(conv, target, is_blocked, params, workload)
    if conv.groups == conv.inputs == conv.result[1]:
        return _depthwise(conv, target, params, workload)
    outputs, inputs = conv.kernel.shape[0] // conv.groups, conv.kernel.shape[1]
    groups = Groups(conv.groups, inputs, outputs)
    whole = replace(conv, kernel=widen_groups(conv.kernel, groups))
    return _dense(whole, target, True, params, workload, groups)


def _predict(conv: Convolution, target: Target) -> str | None:
    """Return the most promising kernel; None if only a direct one is possible."""
    # The transforms magnify the rounding of half precision.
    single = conv.dtype == "float32" and conv.kernel.dtype == np.float32
    plain = conv.window.strides == (1, 1) == conv.window.dilation and conv.groups == 1
    if not single or not plain or conv.kernel.shape[2:] != (3, 3):
        return None
    batch, _, rows, columns = conv.result
    return fast.best_name(batch, rows, columns, target) or DIRECT


def _settle(asked: Params, predicted: str | None, winograd: bool) -> tuple[str, Params]:
    """Return the kernel to use, and the parameters without those that are implied."""
    params = without(asked, "kernel")
    if predicted is None:
        return DIRECT, params
    chosen = str(asked.get("kernel", predicted))
    if not winograd:  # parameters of its kernels do not apply to a direct one
        return DIRECT, params if chosen == DIRECT else {}
    return chosen, params if chosen == predicted else {**params, "kernel": chosen}


def _dense(
    conv: Convolution,
    target: Target,
    is_blocked: bool,
    asked: Params,
    workload: str,
    groups: Groups | None = None,
) -> Kernel:
    """Make the kernel of one group, or one that is widened to whole blocks of channels."""
    shape = _shape(conv, is_blocked, groups)
    ranking = dense_tiles.ranked(shape, target)
    params = ranked(asked, dense_tiles.PARAMETER, [tile.name for tile in ranking])
    wanted = params.get("columns", params.get(dense_tiles.PARAMETER, ranking[0].name))
    tile = dense_tiles.named(str(wanted))
    if not tile.covers(shape):  # for example if one was requested for all workloads
        params, tile = without(params, dense_tiles.PARAMETER), ranking[0]
    common: dict[str, Any] = {
        "out_dtype": conv.dtype,
        "channels": conv.kernel.shape[1],
        "notes": {**notes(workload, params), TILE: tile.name},
    }
    if tile.flat:
        compute = partial(
            blocked.pointwise_conv2d,
            strides=conv.window.strides,
            computed=tile.computed(shape)[1],
            **common,
        )
    else:
        compute = partial(
            blocked.conv2d,
            window=conv.window,
            computed=tile.computed(shape),
            groups=groups,
            **common,
        )
    return Kernel(
        name="conv2d" if groups is None else "grouped_conv2d",
        compute=compute,
        weight=pack_dense(conv.kernel, blocked_input=is_blocked),
        takes_blocks=is_blocked,
    )


def _shape(conv: Convolution, is_blocked: bool, groups: Groups | None) -> dense_tiles.Shape:
    """Return the properties that the choice of a tile depends on."""
    outputs, channels, *kernel = conv.kernel.shape
    blocks = together = -(-outputs // CHANNEL_BLOCK)
    if groups is not None:
        together = groups.outputs // CHANNEL_BLOCK if groups.aligned else 1
    return dense_tiles.Shape(
        blocks=together,
        groups=blocks // together,
        channels=channels,
        kernel=(kernel[0], kernel[1]),
        rows=conv.result[2],
        columns=conv.result[3],
        batch=conv.result[0],
        stride=prod(conv.window.strides),
        flattens=is_blocked
        and not any(conv.window.padding)
        and kernel == [1, 1]
        and groups is None,
        copies=any(conv.window.padding),
    )


def _depthwise(conv: Convolution, target: Target, asked: Params, workload: str) -> Kernel:
    params = ranked(asked, "columns", tiles.ranked_columns(conv.result[3], target))
    return Kernel(
        name="depthwise_conv2d",
        compute=partial(
            blocked.depthwise_conv2d,
            window=conv.window,
            computed_width=tiles.padded(conv.result[3], target, int_of(params, "columns")),
            out_dtype=conv.dtype,
            notes=notes(workload, params),
        ),
        weight=pack_depthwise(conv.kernel),
    )


def _winograd(conv: Convolution, target: Target, name: str, asked: Params, workload: str) -> Kernel:
    batch, _, rows, columns = conv.result
    transform = BY_NAME[name]
    weight = fast.pack_weight(conv.kernel, transform)
    count = fast.tile_count(batch, rows, columns, transform)
    share = fast.even_share(count, weight.shape, target) if "share" in asked else 0
    if share:
        params, computed = without(asked, "columns", "rank"), share * target.cores
    else:
        ranking = fast.ranked_product_columns(count, target)
        params = ranked(without(asked, "share"), "columns", ranking)
        computed = tiles.padded(count, target, int_of(params, "columns") or ranking[0])
    return Kernel(
        name="winograd_conv2d",
        compute=partial(
            fast.conv2d,
            window=conv.window,
            transform=transform,
            computed_tiles=computed,
            notes=notes(workload, params),
        ),
        weight=weight,
        # TVM's analysis does not see that elementwise operators may follow its several stages.
        attrs={"op_pattern": OUT_ELEMENTWISE_FUSABLE},
    )
