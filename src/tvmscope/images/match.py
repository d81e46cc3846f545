"""Compares two results for one image: boxes one to one, classes by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvmscope.core.vision import Answer, Box, BoxPair, Label, Likeness, Sighting
from tvmscope.images.boxes import overlap

LEAST_OVERLAP = 0.5
"""Boxes that overlap less are not the same object."""


def match(before: Answer, after: Answer, like: Likeness, threshold: float) -> Sighting:
    """Compare the second answer with the first; `threshold` is the least score of a box."""
    failure = before.failure or after.failure
    if failure is not None:
        return Sighting(picture=before.picture, failure=failure, same=False)
    boxes = pair_boxes(before.boxes, after.boxes, like, threshold)
    return Sighting(
        picture=before.picture,
        boxes=boxes,
        labels_before=before.labels,
        labels_after=after.labels,
        same=all(pair.same for pair in boxes) and same_labels(before.labels, after.labels, like),
    )


def pair_boxes(
    before: Sequence[Box], after: Sequence[Box], like: Likeness, threshold: float
) -> tuple[BoxPair, ...]:
    """Pair boxes one to one, the largest overlap first; boxes of one class before those of two."""
    overlaps = _overlaps(before, after)
    classes = np.array([box.index for box in after], np.int64)
    same_class = np.array([classes == box.index for box in before]).reshape(overlaps.shape)
    ranks = np.where(overlaps >= LEAST_OVERLAP, overlaps + same_class, 0.0)
    partners: dict[int, int] = {}
    while ranks.size and ranks.max() > 0:
        row, column = (int(i) for i in np.unravel_index(ranks.argmax(), ranks.shape))
        partners[row] = column
        ranks[row], ranks[:, column] = 0.0, 0.0
    pairs = [
        _pair(box, after[partners[i]], float(overlaps[i, partners[i]]), like)
        if i in partners
        else BoxPair(before=box, after=None, same=box.score <= threshold + like.most_score)
        for i, box in enumerate(before)
    ]
    new = (box for j, box in enumerate(after) if j not in partners.values())
    lone = (
        BoxPair(before=None, after=box, same=box.score <= threshold + like.most_score)
        for box in new
    )
    return (*pairs, *lone)


def _overlaps(before: Sequence[Box], after: Sequence[Box]) -> np.ndarray:
    others = np.array([box.corners for box in after], np.float64).reshape(-1, 4)
    rows = [overlap(np.array(box.corners, np.float64), others) for box in before]
    return np.array(rows, np.float64).reshape(len(before), len(after))


def _pair(old: Box, new: Box, iou: float, like: Likeness) -> BoxPair:
    close = iou >= like.least_iou and abs(new.score - old.score) <= like.most_score
    return BoxPair(before=old, after=new, iou=iou, same=close and old.index == new.index)


def same_labels(before: Sequence[Label], after: Sequence[Label], like: Likeness) -> bool:
    """Whether every class scores alike; one that only one side lists must be as weak as its last.

    So two classes of nearly equal scores may swap, and the last may drop off the list.
    """
    old, new = ({label.index: label.score for label in side} for side in (before, after))
    if bool(old) != bool(new):
        return False
    last = {index: min(side.values(), default=0.0) for index, side in enumerate((old, new))}
    return all(
        abs(old.get(index, last[0]) - new.get(index, last[1])) <= like.most_score
        for index in old.keys() | new.keys()
    )
