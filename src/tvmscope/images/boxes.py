"""Arithmetic on boxes: overlap, and the per-class non-maximum suppression of detectors."""

from __future__ import annotations

import numpy as np


def corners_of(centred: np.ndarray) -> np.ndarray:
    """Convert centre x, centre y, width, height to left, top, right, bottom (last axis)."""
    centre, half = centred[..., :2], centred[..., 2:4] / 2
    return np.concatenate((centre - half, centre + half), -1)


def overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return intersection over union of one box with each of N; 0 if both are empty."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0, None), -1)
    union = _area(box) + _area(others) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _area(boxes: np.ndarray) -> np.ndarray:
    return np.asarray((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))


def suppress(
    corners: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float
) -> np.ndarray:
    """Return the indices of the boxes that stay, best first.

    The algorithm is greedy, like torchvision's `batched_nms`: the best box removes those of its
    class that overlap it by more than `iou`. It needs one pass over arrays per box that stays.
    """
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        # compared in double precision, like torchvision: 0.2 in single is more than 0.2
        covered = overlap(corners[best], corners[rest]).astype(np.float64) > iou
        order = rest[~(covered & (classes[rest] == classes[best]))]
    return np.array(kept, np.int64)
