"""The output layouts of detectors: each is recognised by its shapes and decoded into candidates.

| head      | outputs                                            | seen in                         |
|-----------|----------------------------------------------------|---------------------------------|
| `yolov5`  | `1 x N x (5+C)`: box, objectness, classes          | YOLOv3/v5/v7 exports, built-ins |
| `yolov8`  | `1 x (4+C) x N`: box, classes                      | Ultralytics since v8            |
| `darknet` | one `1 x A(5+C) x H x W` per scale, not decoded    | darknet conversions             |
| `nms`     | boxes `1 x N x 4`, scores `1 x C x N`, rows `M x 3`| ONNX zoo YOLOv3 (two inputs)    |
| `end2end` | `1 x N x 6`: corners, score, class                 | exports with NMS inside         |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from tvmscope.core.vision import Anchors, Head
from tvmscope.errors import UsageError
from tvmscope.images.boxes import corners_of
from tvmscope.messages import msg
from tvmscope.quantities import format_shape

NAMES: tuple[Head, ...] = get_args(Head)
_END2END_MOST = 1000
"""A `1 x N x 6` output with more rows is a one-class `yolov5` head, not a list of results."""


@dataclass(frozen=True)
class Candidates:
    """Boxes before suppression, each with its best class."""

    corners: np.ndarray
    """N x 4: left, top, right, bottom; in pixels of the input unless `in_picture`."""
    scores: np.ndarray
    classes: np.ndarray
    class_count: int | None
    in_picture: bool = False
    """Whether the graph knew the image's size and placed its boxes there."""


@dataclass(frozen=True)
class Context:
    """The data that decoding needs besides the outputs."""

    width: int
    height: int
    """The size of the model's input."""
    anchors: tuple[Anchors, ...] = ()
    labels: int | None = None
    """The number of class names from the model or the user."""


Outputs = Sequence[np.ndarray]


def recognise(shapes: Sequence[tuple[int, ...]], labels: int | None = None) -> Head | None:
    """Return the head with these output shapes; None if no layout fits."""
    triples = [shape for shape in shapes if len(shape) == 3 and shape[0] == 1]
    if len(shapes) == 3 and len(triples) == 2 and any(s[-1:] == (3,) for s in shapes):
        return "nms"
    if shapes and all(len(shape) == 4 and shape[0] == 1 for shape in shapes):
        return "darknet" if len({shape[1] for shape in shapes}) == 1 else None
    if not triples:
        return None
    _, rows, columns = triples[0]
    if columns == 6 and rows <= _END2END_MOST and labels != 1:
        return "end2end"
    if rows > columns:
        return "yolov5" if columns > 5 else None
    return "yolov8" if rows > 4 else None


def decode(head: Head, outputs: Outputs, context: Context) -> Candidates:
    """Return all boxes of the outputs, in the order of the outputs."""
    try:
        return _DECODERS[head](outputs, context)
    except (ValueError, IndexError, StopIteration) as e:
        shapes = ", ".join(format_shape(o.shape) for o in outputs)
        raise UsageError(
            msg(
                "outputs of {shapes} do not match the head '{head}'; see --head",
                shapes=shapes,
                head=head,
            )
        ) from e


def _yolov5(outputs: Outputs, context: Context) -> Candidates:
    rows = _rows(outputs)
    objectness = rows.shape[1] - 4 != context.labels  # 4 + C columns: a transposed Ultralytics head
    scores = rows[:, 5:] * rows[:, 4:5] if objectness else rows[:, 4:]
    return _best(rows[:, :4], scores, context)


def _yolov8(outputs: Outputs, context: Context) -> Candidates:
    rows = _rows(outputs).T
    return _best(rows[:, :4], rows[:, 4:], context)


def _end2end(outputs: Outputs, context: Context) -> Candidates:
    rows = _rows(outputs)
    corners = _to_pixels(rows[:, :4], rows[:, 2:4], context)
    return Candidates(corners, rows[:, 4], rows[:, 5].astype(np.int64), None)


def _nms(outputs: Outputs, context: Context) -> Candidates:
    """Decode boxes as top, left, bottom, right in the image; rows have batch, class and box."""
    selected = next(o for o in outputs if o.dtype.kind in "iu")
    boxes, scores = sorted((o for o in outputs if o is not selected), key=lambda o: o.shape[-1])
    boxes, scores = boxes.reshape(-1, 4), scores.reshape(-1, boxes.shape[-2])
    chosen = selected.reshape(-1, 3)
    chosen = chosen[(chosen >= 0).all(1)]  # some compilers pad with -1
    classes, where = chosen[:, 1].astype(np.int64), chosen[:, 2]
    corners = boxes[where][:, [1, 0, 3, 2]]
    return Candidates(corners, scores[classes, where], classes, len(scores), in_picture=True)


def _darknet(outputs: Outputs, context: Context) -> Candidates:
    if len(context.anchors) != len(outputs):
        raise UsageError(
            msg(
                "{count} raw heads need the anchor boxes of as many [yolo] layers, not {anchors}; "
                "give --head darknet:model.cfg",
                count=len(outputs),
                anchors=len(context.anchors),
            )
        )
    heads = [decode_darknet(o, a, context) for o, a in zip(outputs, context.anchors, strict=True)]
    rows = np.concatenate(heads)
    corners = corners_of(rows[:, :4]) * _size(context)
    return _with_best(corners, rows[:, 5:] * rows[:, 4:5])


def decode_darknet(head: np.ndarray, anchors: Anchors, context: Context) -> np.ndarray:
    """Return a raw head as N x (5+C) rows: centre and size relative to the input, then sigmoids."""
    _, _, height, width = head.shape
    count = len(anchors.sizes)
    values = head.astype(np.float32).reshape(count, -1, height, width).transpose(0, 2, 3, 1)
    cells = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)
    reach, grid = anchors.scale_xy, np.array([width, height])
    centres = (_sigmoid(values[..., :2]) * reach - (reach - 1) / 2 + cells) / grid
    shares = np.array(anchors.sizes) / np.array([context.width, context.height])
    sizes = np.exp(values[..., 2:4]) * shares[:, None, None, :]
    rows = np.concatenate((centres, sizes, _sigmoid(values[..., 4:])), -1)
    return rows.reshape(-1, values.shape[-1])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1/inf is right
        return np.asarray(1 / (1 + np.exp(-x)))


def _rows(outputs: Outputs) -> np.ndarray:
    rows: np.ndarray = next(o for o in outputs if o.ndim == 3)[0].astype(np.float32)
    return rows


def _best(centred: np.ndarray, scores: np.ndarray, context: Context) -> Candidates:
    return _with_best(_to_pixels(corners_of(centred), centred[:, :2], context), scores)


def _with_best(corners: np.ndarray, scores: np.ndarray) -> Candidates:
    classes = scores.argmax(1)
    best = np.take_along_axis(scores, classes[:, None], 1)[:, 0]
    return Candidates(corners, best, classes, scores.shape[1])


def _to_pixels(corners: np.ndarray, places: np.ndarray, context: Context) -> np.ndarray:
    """Convert to pixels: heads give pixels or fractions of the input. Centres cover the whole
    input, so if all are below 2 they cannot be pixels."""
    shares = places.size > 0 and float(np.nanmax(places)) < 2
    return corners * _size(context) if shares else corners


def _size(context: Context) -> np.ndarray:
    return np.array([context.width, context.height] * 2, np.float32)


_DECODERS: dict[Head, Callable[[Outputs, Context], Candidates]] = {
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "darknet": _darknet,
    "nms": _nms,
    "end2end": _end2end,
}
