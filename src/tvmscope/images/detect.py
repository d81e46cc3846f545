"""Converts a detector's outputs to named boxes in the image's own pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvmscope.core.vision import Box
from tvmscope.images.boxes import suppress
from tvmscope.images.heads import Candidates
from tvmscope.images.preprocess import Placement

Names = Callable[[int | None], Callable[[int], str]]


def detect(
    found: Candidates, placement: Placement, names: Names, *, score: float, iou: float
) -> tuple[Box, ...]:
    """Return boxes that score at least `score` and survive suppression at `iou`, best first."""
    usable = (found.scores >= score) & np.isfinite(found.corners).all(1)
    corners, scores, classes = (
        values[usable] for values in (found.corners, found.scores, found.classes)
    )
    kept = suppress(corners, scores, classes, iou)
    placed = corners[kept].astype(np.float64)
    if found.in_picture:
        placed = np.clip(placed, 0, [placement.width, placement.height] * 2)
    else:
        placed = placement.to_picture(placed)
    name = names(found.class_count)
    seen = (placed[:, 2:] > placed[:, :2]).all(1)  # the others lie outside the image
    rounded = [[round(float(c), 2) for c in box] for box in placed[seen]]
    return tuple(
        Box(
            index=int(classes[i]),
            name=name(int(classes[i])),
            score=float(scores[i]),
            corners=(left, top, right, bottom),
        )
        for i, (left, top, right, bottom) in zip(kept[seen], rounded, strict=True)
    )
