"""Converters of our own for ONNX operators that TVM's importer translates wrongly or refuses.

Each one gives the result, or None to leave the node to TVM's converter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.frontends.onnx.resize import Axis, resize
from tvmscope.compiler.graph.rewrite import static_shape

Array = np.ndarray[Any, Any]
Inputs = Sequence[relax.Expr | None]
Attributes = dict[str, Any]
_SORTED = ("float32", "float64", "int32", "int64")
"""What TVM's sort takes."""
Converter = Callable[[relax.BlockBuilder, Inputs, Attributes, int], relax.Expr | None]


def _resize(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: Attributes, opset: int
) -> relax.Expr | None:
    """Resize from opset 10 on; sizes that are known at run time only are TVM's."""
    names = ("data", "scales") if opset < 11 else ("data", "roi", "scales", "sizes")
    given = dict(zip(names, inputs, strict=False))
    data = given["data"]
    shape = None if data is None else static_shape(data)
    arrays = {name: _array(given.get(name)) for name in ("roi", "scales", "sizes")}
    unknown = any(given.get(name) is not None and arrays[name] is None for name in arrays)
    if data is None or shape is None or unknown:
        return None
    axes = [int(a) % len(shape) for a in attrs.get("axes", range(len(shape)))]
    scales, sizes = _sizes(shape, axes, arrays, _text(attrs, "keep_aspect_ratio_policy", "stretch"))
    if not axes or 0 in sizes:
        return None
    roi = arrays["roi"]
    ends = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else roi.tolist()
    how: dict[str, Any] = {
        "mode": _text(attrs, "mode", "nearest"),
        "coordinates": _text(
            attrs, "coordinate_transformation_mode", "asymmetric" if opset < 11 else "half_pixel"
        ),
        "nearest": _text(attrs, "nearest_mode", "floor" if opset < 11 else "round_prefer_floor"),
        "cubic": float(attrs.get("cubic_coeff_a", -0.75)),
        "antialias": bool(attrs.get("antialias", 0)),
        "exclude_outside": bool(attrs.get("exclude_outside", 0)),
    }
    wanted = {
        number: Axis(shape[number], size, scale, (ends[n], ends[n + len(axes)]), **how)
        for n, (number, size, scale) in enumerate(zip(axes, sizes, scales, strict=True))
    }
    crops = how["coordinates"] == "tf_crop_and_resize"
    changed = {
        number: axis
        for number, axis in wanted.items()
        if axis.size != axis.output or axis.scale != 1 or (crops and axis.roi != (0.0, 1.0))
    }
    return resize(builder, data, changed, float(attrs.get("extrapolation_value", 0.0)))


def _sizes(
    shape: tuple[int, ...], axes: list[int], arrays: dict[str, Array | None], policy: str
) -> tuple[list[float], list[int]]:
    """The scale and the output size of each axis."""
    sizes = arrays["sizes"]
    if sizes is None or not sizes.size:
        scales = arrays["scales"]
        factors = [] if scales is None else [float(s) for s in scales]
        return factors, [int(shape[a] * s) for a, s in zip(axes, factors, strict=True)]
    exact = [int(s) / shape[a] for a, s in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return exact, [int(s) for s in sizes]
    scale = min(exact) if policy == "not_larger" else max(exact)
    return [scale] * len(axes), [int(scale * shape[a] + 0.5) for a in axes]


def _nms(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: Attributes, opset: int
) -> relax.Expr | None:
    """NonMaxSuppression with ONNX's defaults and its strict comparison with the threshold."""
    boxes, scores, *rest = inputs
    arrays = [_array(value) for value in rest]
    unknown = any(v is not None and a is None for v, a in zip(rest, arrays, strict=True))
    if boxes is None or scores is None or unknown:
        return None
    defaults: tuple[float, ...] = (0, 0.0, float(np.finfo(np.float32).min))
    most, overlap, score = (
        default if found is None or not found.size else found.item()
        for found, default in zip([*arrays, None, None, None][:3], defaults, strict=True)
    )
    if most <= 0:
        return relax.const(np.zeros((0, 3), np.int64), "int64")
    if score < 0:  # TVM takes boxes that do not score above zero for suppressed ones
        scores, score = _ranked(builder, scores, score), 0.5
    if attrs.get("center_point_box", 0):
        boxes = builder.emit(_corners(builder, boxes))
    # TVM drops boxes that overlap by the threshold or more, ONNX by more: one step further is the
    # same. It skips a threshold of zero, so that step must not be lost among denormal numbers.
    limit = max(np.nextafter(np.float32(overlap), np.float32(2)), np.finfo(np.float32).tiny)
    found = builder.emit(
        relax.op.vision.all_class_non_max_suppression(
            boxes,
            scores,
            relax.const(int(most), "int64"),
            relax.const(limit, "float32"),
            relax.const(score, "float32"),
            output_format="onnx",
        )
    )
    return builder.emit(relax.TupleGetItem(found, 0))


def _ranked(builder: relax.BlockBuilder, scores: relax.Expr, least: float) -> relax.Expr:
    """Replace each score by its rank, from the number of boxes down to 1; 0 if not above `least`.

    Suppression only asks which box scores higher.
    """
    emit, op = builder.emit, relax.op
    order = emit(op.argsort(scores, -1, descending=True, dtype="int32"))
    place = emit(op.astype(emit(op.argsort(order, -1, dtype="int32")), "float32"))
    rank = emit(op.subtract(relax.const(int(scores.ty.shape[-1]), "float32"), place))
    usable = emit(op.greater(scores, relax.const(least, str(scores.ty.dtype))))
    return emit(op.where(usable, rank, relax.const(0.0, "float32")))


def _corners(builder: relax.BlockBuilder, boxes: relax.Expr) -> relax.Expr:
    """Centre x, centre y, width, height -> y1, x1, y2, x2, by a product with a constant matrix."""
    matrix = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, -0.5, 0, 0.5], [-0.5, 0, 0.5, 0]])
    dtype = str(boxes.ty.dtype)
    return relax.op.matmul(boxes, relax.const(matrix.astype(dtype), dtype))


def _top_k(
    builder: relax.BlockBuilder, inputs: Inputs, attrs: Attributes, opset: int
) -> relax.Expr | None:
    """TopK; where no order is asked for, the sorted one is as good as any."""
    count = _array(inputs[1]) if len(inputs) > 1 else np.array(attrs.get("k", 1))
    if count is None or inputs[0] is None or str(inputs[0].ty.dtype) in ("float16", "bfloat16"):
        return None
    data, axis = inputs[0], int(attrs.get("axis", -1))
    dtype, largest = str(data.ty.dtype), bool(attrs.get("largest", 1))
    top_k = partial(relax.op.topk, k=int(count.item()), axis=axis, largest=largest, dtype="int64")
    if dtype in _SORTED:
        return top_k(data, ret_type="both")
    key = builder.emit(relax.op.astype(data, "int64"))
    if dtype == "uint64":  # the upper half became negative: turned round, the order is right again
        lowest = relax.const(np.iinfo(np.int64).min, "int64")
        key = builder.emit(relax.op.bitwise_xor(key, lowest))
    chosen = builder.emit(top_k(key, ret_type="indices"))
    values = builder.emit(relax.op.gather_elements(data, chosen, axis % len(data.ty.shape)))
    return builder.emit(relax.Tuple([values, chosen]))


def _text(attrs: Attributes, name: str, default: str) -> str:
    value = attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _array(value: relax.Expr | None) -> Array | None:
    return value.value.numpy() if isinstance(value, GenericConst) else None


CONVERTERS: dict[str, Converter] = {
    "Resize": _resize,
    "NonMaxSuppression": _nms,
    "TopK": _top_k,
}
