"""Runs convolutions of volumes as those of images: the slices of all volumes, one after the other.

    conv3d(x) -> volumes(conv2d(slices(x)))       and what follows on the slices, before volumes()

A window of several slices reads them as channels: the slices that it sees are concatenated, one
kernel that moves data, and the weight is that of a window over one slice with so many times the
channels. A depthwise convolution is the sum of one for each slice of its window instead, because
its channels would no longer be one each. The schedules and kernels for images then compute the
convolution with what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler.graph.elementwise import BINARY, UNARY
from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    is_scalar,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.units.graph import constant

Shape = tuple[int, ...]
_DEPTH_FIRST = [0, 2, 1, 3, 4]
"""NCDHW to NDCHW, and back."""


def volumes() -> tvm.transform.Pass:
    """Return the pass; the second time, what follows batch norms is reached."""
    handlers: dict[str, Handler] = {
        "relax.nn.conv3d": _conv3d,
        "relax.nn.batch_norm": _batch_norm,
    }
    handlers |= {f"relax.{name}": _unary for name in UNARY}
    handlers |= {f"relax.{name}": _binary for name in BINARY}
    tidy = relax.transform.CanonicalizeBindings()
    rewrite = rewrite_calls("Volumes", handlers)
    return tvm.transform.Sequential([rewrite, tidy, rewrite, tidy], name="Volumes")


@dataclass(frozen=True, kw_only=True)
class _Window:
    """How a convolution passes over the slices of a volume."""

    taps: int
    stride: int
    before: int
    after: int
    dilation: int
    slices: int
    """Of the result."""

    @property
    def is_one(self) -> bool:
        """Whether each slice of the result is computed from the slice in its place."""
        return (self.taps, self.stride, self.before, self.after) == (1, 1, 0, 0)

    def seen(self, tap: int) -> tuple[int, int]:
        """The first padded slice that a tap reads, and one after the last."""
        first = tap * self.dilation
        return first, first + (self.slices - 1) * self.stride + 1


def _conv3d(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    attrs, kernel = call.attrs, static_shape(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    shape, result = static_shape(call.args[0]), static_shape(call)
    if layouts != ("NCDHW", "OIDHW", "NCDHW"):
        return None
    if kernel is None or shape is None or result is None:
        return None
    front, top, left, back, bottom, right = (int(p) for p in attrs.padding)
    window = _Window(
        taps=kernel[2],
        stride=int(attrs.strides[0]),
        before=front,
        after=back,
        dilation=int(attrs.dilation[0]),
        slices=result[2],
    )
    groups = int(attrs.groups)
    convolved = partial(
        relax.op.nn.conv2d,
        strides=[int(s) for s in attrs.strides[1:]],
        padding=(top, left, bottom, right),
        dilation=[int(d) for d in attrs.dilation[1:]],
        groups=groups,
        out_dtype=attrs.out_dtype,
    )
    weight = constant(call.args[1])
    if groups == shape[1] == kernel[0] and kernel[2] > 1 and weight is not None:
        each = _seen(rewriter, call.args[0], shape, window, groups, joined=False)
        taps = [relax.const(np.ascontiguousarray(weight[:, :, n])) for n in range(kernel[2])]
        parts = [rewriter.emit(convolved(*pair)) for pair in zip(each, taps, strict=True)]
        image: relax.Expr = reduce(lambda a, b: rewriter.emit(relax.op.add(a, b)), parts)
    else:
        (seen,) = _seen(rewriter, call.args[0], shape, window, groups)
        image = convolved(seen, _of_slices(rewriter, call.args[1], kernel))
    return _as_volumes(rewriter, image, result)


def _of_slices(rewriter: Rewriter, weight: relax.Expr, shape: Shape) -> relax.Expr:
    """Return (O, I, D, H, W) as (O, D * I, H, W)."""
    o, i, d, h, w = shape
    array = constant(weight)
    if array is not None:
        moved = np.ascontiguousarray(array.transpose(_DEPTH_FIRST)).reshape(o, d * i, h, w)
        return relax.const(moved, str(array.dtype))
    turned = rewriter.emit(relax.op.permute_dims(weight, _DEPTH_FIRST))
    return rewriter.emit(relax.op.reshape(turned, (o, d * i, h, w)))


def _seen(
    rewriter: Rewriter,
    value: relax.Expr,
    shape: Shape,
    window: _Window,
    groups: int,
    *,
    joined: bool = True,
) -> list[relax.Expr]:
    """Return the slices that each slice of the result is computed from, as its channels; tap by
    tap if they are not to be `joined`."""
    batch, channels, depth, height, width = shape
    slices = _slices(rewriter, value)
    if window.is_one:
        return [slices]
    rest = (channels // groups, height, width)
    frames = rewriter.emit(relax.op.reshape(slices, (batch, depth, groups, *rest)))
    if window.before or window.after:
        pads = [0, 0, window.before, window.after, *[0] * 8]
        frames = rewriter.emit(relax.op.nn.pad(frames, pads))
    taps = []
    for tap in range(window.taps):
        first, end = window.seen(tap)
        taps.append(
            rewriter.emit(
                relax.op.strided_slice(
                    frames, axes=[1], begin=[first], end=[end], strides=[window.stride]
                )
            )
        )
    if joined and len(taps) > 1:
        taps = [rewriter.emit(relax.op.concat(taps, 3))]
    images = (batch * window.slices, window.taps * channels // len(taps), height, width)
    return [rewriter.emit(relax.op.reshape(tap, images)) for tap in taps]


def _slices(rewriter: Rewriter, value: relax.Expr) -> relax.Expr:
    """Return the slices of volumes, which they may have been made of."""
    made = _made_of(rewriter, value)
    if made is not None:
        return made
    shape = static_shape(value)
    assert shape is not None
    turned = rewriter.emit(relax.op.permute_dims(value, _DEPTH_FIRST))
    return rewriter.emit(relax.op.reshape(turned, _sliced(shape)))


def _sliced(shape: Shape) -> Shape:
    return (shape[0] * shape[2], shape[1], *shape[3:])


def _made_of(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the slices that `value` was made of."""
    shape = static_shape(value)
    turned = bound_call(rewriter, value, "permute_dims")
    if turned is None or shape is None or len(shape) != 5:
        return None
    if [int(a) for a in turned.attrs.axes] != _DEPTH_FIRST:
        return None
    split = bound_call(rewriter, turned.args[0], "reshape")
    if split is None or static_shape(split.args[0]) != _sliced(shape):
        return None
    return split.args[0]


def _as_volumes(rewriter: Rewriter, image: relax.Expr, shape: Shape) -> relax.Expr:
    n, c, d, h, w = shape
    split = rewriter.emit(relax.op.reshape(rewriter.emit(image), (n, d, c, h, w)))
    return relax.op.permute_dims(split, _DEPTH_FIRST)


def _unary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    slices, shape = _made_of(rewriter, call.args[0]), static_shape(call)
    if slices is None or shape is None:
        return None
    return _as_volumes(rewriter, relax.Call(call.op, [slices, *call.args[1:]], call.attrs), shape)


def _binary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call)
    if shape is None or len(shape) != 5:
        return None
    made = [s for a in call.args if (s := _made_of(rewriter, a)) is not None]
    if _sliced(shape) not in (static_shape(slices) for slices in made):
        return None
    args = [a for given in call.args if (a := _operand(rewriter, given, shape)) is not None]
    if len(args) < len(call.args):
        return None
    return _as_volumes(rewriter, relax.Call(call.op, args, call.attrs), shape)


def _operand(rewriter: Rewriter, value: relax.Expr, shape: Shape) -> relax.Expr | None:
    """Return an operand as one of slices: volumes, or what is the same for all of them."""
    given = static_shape(value)
    if is_scalar(value) or given == ():
        return value
    if given is None:
        return None
    if given == shape:
        return _slices(rewriter, value)
    whole = (1,) * (5 - len(given)) + given
    if whole[0] != 1 or whole[2] != 1:
        return None  # another value for each volume, or for each slice
    return rewriter.emit(relax.op.reshape(value, (1, whole[1], *whole[3:])))


def _batch_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    slices, shape = _made_of(rewriter, call.args[0]), static_shape(call.args[0])
    if slices is None or shape is None or int(call.attrs.axis) != 1:
        return None
    norm = rewriter.emit(relax.Call(call.op, [slices, *call.args[1:]], call.attrs))
    fields = [rewriter.emit(relax.TupleGetItem(norm, i)) for i in range(3)]
    fields[0] = rewriter.emit(_as_volumes(rewriter, fields[0], shape))
    return relax.Tuple(fields)
