"""Converts a classifier's output to its best classes by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvmscope.core.vision import Label

TOP = 5
_SUM_TOLERANCE = 1e-2
"""Half-precision probabilities of a thousand classes sum to 1 within this tolerance."""


def is_scores(shape: tuple[int, ...]) -> bool:
    """Whether an output has one number per class: all dimensions but one are 1."""
    return sum(dim > 1 for dim in shape) == 1


def classify(output: np.ndarray, name: Callable[[int], str], top: int = TOP) -> tuple[Label, ...]:
    """Return the `top` best classes, best first."""
    scores = probabilities(output.reshape(-1).astype(np.float64))
    best = np.argsort(-scores, kind="stable")[:top]
    return tuple(Label(index=int(i), name=name(int(i)), score=float(scores[i])) for i in best)


def probabilities(values: np.ndarray) -> np.ndarray:
    """Apply softmax to logits; probabilities are returned unchanged."""
    if values.min() >= 0 and abs(float(values.sum()) - 1) < _SUM_TOLERANCE:
        return values
    grown = np.exp(values - values.max())
    return np.asarray(grown / grown.sum())
