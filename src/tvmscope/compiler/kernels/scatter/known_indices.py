"""Analyses known indices of a scatter: a box of the target, or the update of each element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_LONG = 64
"""Rows of at least this many elements are worth copying as rows."""
_LEAST_ROWS = 16
"""Fewer rows than this are too few to distribute among cores."""


@dataclass(frozen=True)
class Box:
    """Every `step`-th index from `start`, `count` times, along each of the leading axes."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]

    def covers(self, lead: tuple[int, ...]) -> bool:
        """Whether the box is the whole target, in order."""
        whole = all(start == 0 for start in self.starts) and self.counts == lead
        return whole and all(step == 1 for step in self.steps)

    def run(self, rows: int, shape: Sequence[int]) -> tuple[int, int]:
        """Return where the box begins in a row of `shape[rows:]`, and its number of elements."""
        starts = (*self.starts, *(0,) * (len(shape) - len(self.starts)))
        counts = (*self.counts, *shape[len(self.counts) :])
        inner = prod(shape[rows + 1 :])
        return (starts[rows] * inner, counts[rows] * inner) if rows < len(shape) else (0, 1)


def copied_rows(boxes: Sequence[Box], shape: tuple[int, ...]) -> int | None:
    """Return how many axes form the rows, such that each box is one run of every row it meets.

    None if there is no such number, or there are too few rows for several cores.
    """
    restricted = 0
    for box in boxes:
        for axis, (count, size) in enumerate(zip(box.counts, shape, strict=False)):
            if count != size:
                restricted = max(restricted, axis)
    steps = {box.steps[restricted] for box in boxes if restricted < len(box.steps)}
    long = prod(shape[restricted + 1 :]) >= _LONG
    rows = restricted + 1 if long else restricted
    if (not long and steps - {1}) or prod(shape[:rows]) < _LEAST_ROWS:
        return None
    return rows


def wrapped(rows: Array, lead: tuple[int, ...]) -> Array | None:
    """Return coordinates with negative ones counted from the end; None if one is out of range."""
    sizes = np.array(lead, np.int64)
    found = np.where(rows < 0, rows + sizes, rows)
    return found if bool(((found >= 0) & (found < sizes)).all()) else None


def elements(indices: Array, axis: int) -> Array:
    """Return the coordinates, one row for each update, that ScatterElements' indices denote."""
    grid = np.indices(indices.shape, dtype=np.int64)
    grid[axis] = indices
    return grid.reshape(indices.ndim, -1).T


def box_of(rows: Array) -> Box | None:
    """Return the box if the rows traverse one in row-major order."""
    axes = [np.unique(column) for column in rows.T]
    counts = tuple(len(values) for values in axes)
    if prod(counts) != len(rows):
        return None
    starts = tuple(int(values[0]) for values in axes)
    steps = tuple(int(v[1] - v[0]) if len(v) > 1 else 1 for v in axes)
    grid = np.indices(counts, dtype=np.int64).reshape(len(counts), -1).T
    if not np.array_equal(grid * np.array(steps) + np.array(starts), rows):
        return None
    return Box(starts, steps, counts)


def flat(rows: Array, lead: tuple[int, ...]) -> Array:
    """Return each row's index in the flattened leading axes."""
    return np.ravel_multi_index(tuple(rows.T), lead) if len(rows) else np.zeros(0, np.int64)


def has_duplicates(places: Array) -> bool:
    return len(np.unique(places)) < len(places)


def winners(places: Array, size: int) -> Array:
    """Return for each element the last update that is written to it, or -1."""
    found = np.full(size, -1, np.int32)
    found[places] = np.arange(len(places), dtype=np.int32)  # numpy assigns in order
    return found


def chains(places: Array, size: int) -> tuple[Array, Array]:
    """Return each element's first update, and each update's successor; -1 ends a chain."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    follows = np.zeros(len(places), bool)
    follows[1:] = ordered[1:] == ordered[:-1]
    heads, nexts = np.full(size, -1, np.int32), np.full(len(places), -1, np.int32)
    heads[ordered[~follows]] = order[~follows]
    nexts[order[:-1][follows[1:]]] = order[1:][follows[1:]]
    return heads, nexts
