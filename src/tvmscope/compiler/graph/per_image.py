"""Lists the operators that treat each image of a batch separately, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.tirx import IntImm

from tvmscope.compiler.graph.rewrite import flat, static_shape

Check = Callable[[relax.Call, Sequence[bool], tuple[int, ...]], bool]
"""Takes a call, whether each of its arguments differs by image, and the shape of its (first)
result; returns whether image i of the result depends only on image i of those arguments."""


def _aligned(call: relax.Call, differs: Sequence[bool], out: tuple[int, ...]) -> bool:
    """Elementwise: operands that differ by image have all dimensions; the others have no image
    axis.

    Scalars and whole-tensor operands broadcast.
    """
    for argument, by_image in zip(flat(call.args), differs, strict=True):
        if not isinstance(argument.ty, relax.TensorType):
            continue  # a bound of clip, a number
        shape = static_shape(argument)
        if shape is None or (len(shape) != len(out) if by_image else _leading(shape, out) != 1):
            return False
    return True


def _leading(shape: tuple[int, ...], out: tuple[int, ...]) -> int:
    """Return the dimension that aligns with the result's images; 1 if there is none."""
    return shape[0] if len(shape) == len(out) else 1


def _data_alone(call: relax.Call, differs: Sequence[bool], _: tuple[int, ...]) -> bool:
    """Only the data differs by image, and its first dimension is the images."""
    layouts = (getattr(call.attrs, name, None) for name in ("data_layout", "layout", "out_layout"))
    return differs[0] and not any(differs[1:]) and all(str(x)[0] == "N" for x in layouts if x)


def _keeps_images(call: relax.Call, differs: Sequence[bool], out: tuple[int, ...]) -> bool:
    """Whether it is a reshape that keeps the first dimension."""
    shape = static_shape(call.args[0])
    return differs[0] and shape is not None and bool(out) and shape[0] == out[0]


def _axes(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(v) for v in value] if hasattr(value, "__iter__") else [int(value)]


def _along(attribute: str) -> Check:
    """Check that the operator works along axes other than the images'."""

    def check(call: relax.Call, differs: Sequence[bool], _: tuple[int, ...]) -> bool:
        shape, axes = static_shape(flat(call.args)[0]), _axes(getattr(call.attrs, attribute))
        if shape is None or not axes or not differs[0]:
            return False
        return all(axis % len(shape) for axis in axes)

    return check


def _along_with(attribute: str) -> Check:
    """Check the same with further arguments that do not differ by image: gamma and beta."""
    along = _along(attribute)
    return lambda call, differs, out: along(call, differs, out) and not any(differs[1:])


def _along_all(attribute: str) -> Check:
    """Check the same if every argument must differ by image: a concatenation."""
    along = _along(attribute)
    return lambda call, differs, out: along(call, differs, out) and all(differs)


def _images_stay_first(call: relax.Call, differs: Sequence[bool], _: tuple[int, ...]) -> bool:
    return bool(_axes(call.attrs.axes)) and _axes(call.attrs.axes)[0] == 0


def _slice(call: relax.Call, differs: Sequence[bool], out: tuple[int, ...]) -> bool:
    """Check a slice; its axes are an argument, a tuple of numbers."""
    axes = call.args[1]
    if not differs[0] or not isinstance(axes, relax.Tuple):
        return False
    numbers = [a.value for a in axes.fields if isinstance(a, IntImm)]
    return len(numbers) == len(axes.fields) and all(int(n) % len(out) for n in numbers)


def _pad(call: relax.Call, differs: Sequence[bool], _: tuple[int, ...]) -> bool:
    width = _axes(call.attrs.pad_width)
    return differs[0] and width[:2] == [0, 0]


def _matmul(call: relax.Call, differs: Sequence[bool], out: tuple[int, ...]) -> bool:
    """Check a product of the images' rows with one matrix, or one product per image."""
    left, right = (static_shape(a) for a in call.args)
    if left is None or right is None:
        return False
    if len(right) == 2 and not differs[1]:
        return len(left) >= 2
    whole = [shape for shape, by_image in zip((left, right), differs, strict=True) if by_image]
    fixed = [shape for shape, by_image in zip((left, right), differs, strict=True) if not by_image]
    return (
        len(out) > 2
        and all(len(shape) == len(out) for shape in whole)
        and all(_leading(shape, out) == 1 for shape in fixed)
    )


_ELEMENTWISE = (
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "where", "clip",
    "astype", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "negative", "floor",
    "ceil", "round", "sin", "cos", "square", "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh",
    "nn.silu", "nn.softplus", "less", "less_equal", "greater", "greater_equal", "equal",
    "not_equal", "logical_and", "logical_or", "logical_not",
)  # fmt: skip
_ON_DATA = (
    "nn.conv1d", "nn.conv2d", "nn.conv2d_transpose", "nn.max_pool1d", "nn.max_pool2d",
    "nn.avg_pool1d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "image.resize2d",
)  # fmt: skip
_REDUCTIONS = ("mean", "sum", "max", "min", "prod", "variance", "std")

TREATS_EACH_ALONE: dict[str, Check] = {
    **dict.fromkeys(_ELEMENTWISE, _aligned),
    **dict.fromkeys(_ON_DATA, _data_alone),
    **dict.fromkeys(_REDUCTIONS, _along("axis")),
    "nn.softmax": _along("axis"),
    "nn.log_softmax": _along("axis"),
    "nn.layer_norm": _along_with("axes"),
    "concat": _along_all("axis"),
    "split": _along("axis"),
    "squeeze": _along("axis"),
    "permute_dims": _images_stay_first,
    "reshape": _keeps_images,
    "flatten": _keeps_images,
    "strided_slice": _slice,
    "nn.pad": _pad,
    "matmul": _matmul,
}
