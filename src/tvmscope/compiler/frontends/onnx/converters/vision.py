"""Resize, non-maximum suppression and TopK."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from tvmscope.compiler.frontends.onnx.converters.node import Array, Converter, Node, array_of
from tvmscope.compiler.frontends.onnx.converters.resize import Axis, resize
from tvmscope.compiler.graph.rewrite import static_shape

_SORTED = ("float32", "float64", "int32", "int64")
"""The types that TVM's sort takes."""


def _resize(node: Node) -> relax.Expr | None:
    """Convert Resize from opset 10 on; sizes that are known at run time only are left to TVM."""
    attrs, opset = node.attributes, node.opset
    names = ("data", "scales") if opset < 11 else ("data", "roi", "scales", "sizes")
    given = dict(zip(names, node.inputs, strict=False))
    data = given["data"]
    shape = None if data is None else static_shape(data)
    arrays = {name: array_of(given.get(name)) for name in ("roi", "scales", "sizes")}
    unknown = any(given.get(name) is not None and arrays[name] is None for name in arrays)
    if data is None or shape is None or unknown:
        return None
    axes = [int(a) % len(shape) for a in attrs.get("axes", range(len(shape)))]
    scales, sizes = _sizes(shape, axes, arrays, node.text("keep_aspect_ratio_policy", "stretch"))
    if not axes or 0 in sizes:
        return None
    roi = arrays["roi"]
    ends = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else roi.tolist()
    how: dict[str, Any] = {
        "mode": node.text("mode", "nearest"),
        "coordinates": node.text(
            "coordinate_transformation_mode", "asymmetric" if opset < 11 else "half_pixel"
        ),
        "nearest": node.text("nearest_mode", "floor" if opset < 11 else "round_prefer_floor"),
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
    return resize(node.builder, data, changed, float(attrs.get("extrapolation_value", 0.0)))


def _upsample(node: Node) -> relax.Expr | None:
    """Convert Upsample, the Resize before opset 10: asymmetric coordinates, rounded down."""
    scales = node.constant(1) if node.opset >= 9 else np.array(node.get("scales", ()))
    if scales is None:
        return None
    how = {"mode": node.text("mode", "nearest"), "coordinate_transformation_mode": "asymmetric"}
    inputs = [node.input(0), None, relax.const(np.asarray(scales, np.float32), "float32")]
    return _resize(Node(node.builder, inputs, {**how, "nearest_mode": "floor"}, 11))


def _sizes(
    shape: tuple[int, ...], axes: list[int], arrays: dict[str, Array | None], policy: str
) -> tuple[list[float], list[int]]:
    """Return the scale and the output size of each axis."""
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


def _nms(node: Node) -> relax.Expr | None:
    """Convert NonMaxSuppression with ONNX's defaults and its strict comparison of thresholds."""
    builder = node.builder
    boxes, scores, *rest = node.inputs
    arrays = [array_of(value) for value in rest]
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
    if score < 0:  # TVM treats boxes with a score of zero or less as suppressed
        scores, score = _ranked(builder, scores, score), 0.5
    if node.get("center_point_box", 0):
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

    Suppression only needs to know which box scores higher.
    """
    emit, op = builder.emit, relax.op
    order = emit(op.argsort(scores, -1, descending=True, dtype="int32"))
    place = emit(op.astype(emit(op.argsort(order, -1, dtype="int32")), "float32"))
    rank = emit(op.subtract(relax.const(int(scores.ty.shape[-1]), "float32"), place))
    usable = emit(op.greater(scores, relax.const(least, str(scores.ty.dtype))))
    return emit(op.where(usable, rank, relax.const(0.0, "float32")))


def _corners(builder: relax.BlockBuilder, boxes: relax.Expr) -> relax.Expr:
    """Convert centre x, y, width, height to y1, x1, y2, x2: a product with a constant matrix."""
    matrix = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, -0.5, 0, 0.5], [-0.5, 0, 0.5, 0]])
    dtype = str(boxes.ty.dtype)
    return relax.op.matmul(boxes, relax.const(matrix.astype(dtype), dtype))


def _top_k(node: Node) -> relax.Expr | None:
    """Convert TopK; if no order is requested, the result is sorted, too."""
    builder, inputs = node.builder, node.inputs
    count = array_of(inputs[1]) if len(inputs) > 1 else np.array(node.get("k", 1))
    if count is None or inputs[0] is None or str(inputs[0].ty.dtype) in ("float16", "bfloat16"):
        return None
    data, axis = inputs[0], int(node.get("axis", -1))
    dtype, largest = str(data.ty.dtype), bool(node.get("largest", 1))
    top_k = partial(relax.op.topk, k=int(count.item()), axis=axis, largest=largest, dtype="int64")
    if dtype in _SORTED:
        return top_k(data, ret_type="both")
    key = builder.emit(relax.op.astype(data, "int64"))
    if dtype == "uint64":  # the upper half became negative: flipped, the order is right again
        lowest = relax.const(np.iinfo(np.int64).min, "int64")
        key = builder.emit(relax.op.bitwise_xor(key, lowest))
    chosen = builder.emit(top_k(key, ret_type="indices"))
    values = builder.emit(relax.op.gather_elements(data, chosen, axis % len(data.ty.shape)))
    return builder.emit(relax.Tuple([values, chosen]))


CONVERTERS: dict[str, Converter] = {
    "Resize": _resize,
    "NonMaxSuppression": _nms,
    "TopK": _top_k,
    "Upsample": _upsample,
}
