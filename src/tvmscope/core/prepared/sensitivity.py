"""The names in a file that says how sensitive a model is to rounding (`sensitivity.npz`)."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MAX, RMS = "max/", "rms/"
"""Prefixes of a floating-point output's name: the deviation of the framework's own results, at most
and on average."""
TRUTH = "truth/"
"""Prefix of its name: the output in float64, if the model could run in it."""
MASK = "mask/"
"""Prefix of an integer output's name: the elements that rounding alone changes, such as the index
of the larger of two nearly equal values."""
RUNS = "runs/"
"""Prefix of a floating-point output's name, if rounding makes a few of its elements jump: what each
of the framework's own results has. Rows sorted by nearly equal values change places."""
SHARE = 0.05
"""The largest share of elements that may jump."""
_JUMP = 100.0
"""How many times the deviation of the others one that jumps has at least."""
UNIT = 2.0**-24
"""The rounding error of one float32 operation; amplification is relative to it."""


def jumping(gaps: Array) -> Array:
    """Return which elements deviate by far more than nearly all others, in one run's deviations."""
    found: Array = gaps > _JUMP * np.quantile(gaps, 1.0 - SHARE)
    return found
