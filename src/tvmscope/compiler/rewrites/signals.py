"""Runs convolutions of signals as those of images that are one pixel high.

    conv1d(x) -> squeeze(conv2d(expand(x)))        and what follows on the image, before the squeeze

The schedules and kernels for images then compute them with what follows, and batch norms are folded
into them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvmscope.compiler.graph.elementwise import BINARY, UNARY
from tvmscope.compiler.graph.rewrite import (
    Handler,
    Rewriter,
    bound_call,
    flat,
    is_scalar,
    rewrite_calls,
    static_shape,
)
from tvmscope.compiler.units.graph import constant, name_of, scalar

Shape = tuple[int, ...]


def signals(*, depthwise: bool) -> tvm.transform.Pass:
    """Return the pass; the second time, what follows batch norms is reached. Without `depthwise`, a
    depthwise convolution of what is no image yet is left: it takes less than becoming one."""
    handlers: dict[str, Handler] = {
        "relax.nn.conv1d": partial(_conv1d, depthwise),
        "relax.nn.conv1d_transpose": _transposed,
        "relax.nn.batch_norm": _batch_norm,
        "relax.nn.max_pool1d": _pool,
        "relax.nn.avg_pool1d": _pool,
        "relax.mean": _mean,
        "relax.strided_slice": _slice,
        "relax.split": _split,
        "relax.concat": _concat,
        "relax.expand_dims": _expand,
        "relax.reshape": _expand,
    }
    handlers |= {f"relax.{name}": _unary for name in UNARY}
    handlers |= {f"relax.{name}": _binary for name in BINARY}
    tidy = relax.transform.CanonicalizeBindings()
    rewrite = rewrite_calls("Signals", handlers)
    return tvm.transform.Sequential([rewrite, tidy, rewrite, tidy], name="Signals")


def _image(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return the image that was squeezed to `value`."""
    call = bound_call(rewriter, value, "reshape")
    call = bound_call(rewriter, value, "squeeze") if call is None else call
    after = static_shape(value)
    before = static_shape(call.args[0]) if call is not None else None
    if call is None or after is None or before is None or len(after) != 3:
        return None
    return call.args[0] if before == _high(after) else None


def _high(shape: Shape) -> Shape:
    """Return a signal's shape as that of an image, also of one that is broadcast to signals."""
    whole = (1,) * (3 - len(shape)) + shape
    return (*whole[:2], 1, whole[2])


def _expanded(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return a value as an image, which it may have been before."""
    if is_scalar(value):
        return value
    shape = static_shape(value)
    if shape is None or len(shape) > 3:
        return None
    image = _image(rewriter, value)
    return rewriter.emit(relax.op.reshape(value, _high(shape))) if image is None else image


def _squeezed(rewriter: Rewriter, image: relax.Expr, shape: Shape | None) -> relax.Expr | None:
    return None if shape is None else relax.op.reshape(rewriter.emit(image), shape)


def _conv1d(depthwise: bool, rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape, groups = static_shape(call.args[0]), int(call.attrs.groups)
    if not depthwise and shape and groups == shape[1] > 1:
        pad = bound_call(rewriter, call.args[0], "nn.pad")
        if _image(rewriter, call.args[0] if pad is None else pad.args[0]) is None:
            return None
    found = _operands(rewriter, call, "OIW")
    if found is None:
        return None
    image = relax.op.nn.conv2d(*found, **_window(call))
    return _squeezed(rewriter, image, static_shape(call))


def _transposed(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    found = _operands(rewriter, call, "IOW")
    if found is None:
        return None
    more = (0, int(call.attrs.output_padding[0]))
    image = relax.op.nn.conv2d_transpose(*found, output_padding=more, **_window(call))
    return _squeezed(rewriter, image, static_shape(call))


def _operands(
    rewriter: Rewriter, call: relax.Call, kernel: str
) -> tuple[relax.Expr, relax.Expr] | None:
    """Return a convolution's data and weight as those of images; None in another layout."""
    attrs, weight = call.attrs, static_shape(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    data = _padded(rewriter, call.args[0])
    if layouts != ("NCW", kernel, "NCW") or weight is None or data is None:
        return None
    return data, _weight(rewriter, call.args[1], _high(weight))


def _window(call: relax.Call) -> dict[str, Any]:
    """Return how a convolution passes over images that are one pixel high."""
    attrs = call.attrs
    left, right = (int(p) for p in attrs.padding)
    return {
        "strides": (1, int(attrs.strides[0])),
        "padding": (0, left, 0, right),
        "dilation": (1, int(attrs.dilation[0])),
        "groups": attrs.groups,
        "out_dtype": attrs.out_dtype,
    }


def _padded(rewriter: Rewriter, value: relax.Expr) -> relax.Expr | None:
    """Return a signal as an image; one that was padded, as a padded image."""
    pad = bound_call(rewriter, value, "nn.pad")
    if pad is None:
        return _expanded(rewriter, value)
    image, widths = _expanded(rewriter, pad.args[0]), [int(n) for n in pad.attrs.pad_width]
    if image is None:
        return None
    wide = [*widths[:4], 0, 0, *widths[4:]]
    padded = relax.op.nn.pad(image, wide, str(pad.attrs.pad_mode), float(pad.attrs.pad_value))
    return rewriter.emit(padded)


def _weight(rewriter: Rewriter, weight: relax.Expr, shape: Shape) -> relax.Expr:
    array = constant(weight)
    if array is not None:
        return relax.const(array.reshape(shape), str(array.dtype))
    return rewriter.emit(relax.op.reshape(weight, shape))


def _expand(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Replace the image of a squeezed image by that one: PyTorch's own pools are made so."""
    image = _image(rewriter, call.args[0])
    return image if image is not None and static_shape(image) == static_shape(call) else None


def _unary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _image(rewriter, call.args[0])
    if image is None:
        return None
    moved = relax.Call(call.op, [image, *call.args[1:]], call.attrs)
    return _squeezed(rewriter, moved, static_shape(call))


def _binary(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call)
    images = [i for a in call.args if (i := _image(rewriter, a)) is not None]
    if shape is None or _high(shape) not in (static_shape(image) for image in images):
        return None
    args = [a for given in call.args if (a := _expanded(rewriter, given)) is not None]
    if len(args) < len(call.args):
        return None
    return _squeezed(rewriter, relax.Call(call.op, args, call.attrs), shape)


def _batch_norm(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image, shape = _image(rewriter, call.args[0]), static_shape(call.args[0])
    if image is None or shape is None or int(call.attrs.axis) != 1:
        return None
    norm = rewriter.emit(relax.Call(call.op, [image, *call.args[1:]], call.attrs))
    fields = [rewriter.emit(relax.TupleGetItem(norm, i)) for i in range(3)]
    fields[0] = rewriter.emit(relax.op.reshape(fields[0], shape))
    return relax.Tuple(fields)


def _pool(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image, attrs = _image(rewriter, call.args[0]), call.attrs
    if image is None or str(attrs.layout) != "NCW":
        return None
    left, right = (int(p) for p in attrs.padding)
    build = getattr(relax.op.nn, name_of(call).removeprefix("nn.").replace("1d", "2d"))
    pooled = build(
        image,
        (1, int(attrs.pool_size[0])),
        strides=(1, int(attrs.strides[0])),
        padding=(0, left, 0, right),
        dilation=(1, int(attrs.dilation[0])),
        ceil_mode=attrs.ceil_mode,
        count_include_pad=attrs.count_include_pad,
    )
    return _squeezed(rewriter, pooled, static_shape(call))


def _mean(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    """Rewrite a mean over a signal's length as one over pixels."""
    image, axes = _image(rewriter, call.args[0]), call.attrs.axis
    if image is None or axes is None or [int(a) % 3 for a in axes] != [2]:
        return None
    mean = relax.op.mean(image, [2, 3])
    return _squeezed(rewriter, mean, static_shape(call)) if call.attrs.keepdims else mean


def _slice(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _image(rewriter, call.args[0])
    axes = [scalar(a) for a in flat([call.args[1]])]
    if image is None or None in axes:
        return None
    along = relax.Tuple([tvm.tirx.IntImm("int64", _along(int(a or 0))) for a in axes])
    return _squeezed(
        rewriter,
        relax.Call(call.op, [image, along, *call.args[2:]], call.attrs),
        static_shape(call),
    )


def _split(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    image = _image(rewriter, call.args[0])
    if image is None:
        return None
    found = call.attrs.indices_or_sections
    sections = int(found) if isinstance(found, int | tvm.tirx.IntImm) else [int(n) for n in found]
    parts = rewriter.emit(relax.op.split(image, sections, _along(int(call.attrs.axis))))
    shapes = [[int(d) for d in field.shape.values] for field in call.ty.fields]
    fields = (rewriter.emit(relax.TupleGetItem(parts, i)) for i in range(len(shapes)))
    squeezed = zip(fields, shapes, strict=True)
    return relax.Tuple([rewriter.emit(relax.op.reshape(f, shape)) for f, shape in squeezed])


def _concat(rewriter: Rewriter, call: relax.Call) -> relax.Expr | None:
    fields = flat(call.args)
    if not any(_image(rewriter, field) is not None for field in fields):
        return None
    images = [image for f in fields if (image := _expanded(rewriter, f)) is not None]
    if len(images) < len(fields) or call.attrs.axis is None:
        return None
    joined = relax.op.concat(images, _along(int(call.attrs.axis)))
    return _squeezed(rewriter, joined, static_shape(call))


def _along(axis: int) -> int:
    """Return a signal's axis as that of an image."""
    return (0, 1, 3)[axis % 3]
