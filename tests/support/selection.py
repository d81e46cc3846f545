"""Graphs that sort and suppress, and what numpy makes of the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

Array = np.ndarray[Any, Any]


def ordered(data: Array, axis: int, *, descending: bool) -> Array:
    """numpy's stable order, ascending or turned round with equal elements as they were."""
    if not descending:
        return np.argsort(data, axis, kind="stable")
    backwards = np.argsort(np.flip(data, axis), axis, kind="stable")
    return np.flip(data.shape[axis] - 1 - backwards, axis)


def suppressed(boxes: Array, scores: Array, most: int, overlap: float, score: float) -> Array:
    """Batch, class and box, one after the other; a box goes above `overlap`."""
    found = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        stayed: list[int] = []
        for box in np.argsort(-scores[batch, kind], kind="stable"):
            enough = len(stayed) == most or not scores[batch, kind, box] > score
            mine = boxes[batch, box]
            if not enough and all(_iou(mine, boxes[batch, b]) <= overlap for b in stayed):
                stayed.append(int(box))
        found += [(batch, kind, box) for box in stayed]
    return np.array(found, np.int64).reshape(-1, 3)


def _iou(a: Array, b: Array) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(sides, np.float32(0)))
    joint = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return float(shared / joint) if joint > 0 else 0.0


def picture(seed: int, batch: int, classes: int, count: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (batch, count, 2))
    boxes = np.concatenate([corners, corners + rng.integers(1, 9, corners.shape)], -1)
    scores = rng.integers(0, 50, (batch, classes, count)) / 50
    return boxes.astype(np.float32), scores.astype(np.float32)


def nms(boxes: Any, scores: Any, most: int, overlap: float, score: float) -> relax.Expr:
    numbers = (relax.const(most, "int64"), *(relax.const(v, "float32") for v in (overlap, score)))
    return relax.op.vision.all_class_non_max_suppression(boxes, scores, *numbers)
