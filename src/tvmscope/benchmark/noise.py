"""Judges an error against the model's own rounding noise, where a fixed tolerance fails.

Some models amplify rounding: their framework, run twice with another order of sums, differs from
itself by more than any tolerance. `models.sensitivity` estimates that noise; a result is within it
if its distance from the truth is at most a few times that of the framework's own results.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvmscope.benchmark.differences import Array, difference
from tvmscope.core.prepared.sensitivity import MASK, MAX, RMS, RUNS, SHARE, TRUTH, jumping
from tvmscope.storage.files import map_npz

FACTOR = 8.0
"""How many times the framework's own deviation a result may be off: sums in another order, of
other lengths, round differently, but not by orders of magnitude."""
CEILING = 0.05
"""A model whose noise is a larger share of its outputs hides any error: it excuses none."""


@dataclass(frozen=True)
class Noise:
    """The estimate that `models.sensitivity` wrote."""

    arrays: dict[str, Array]

    @classmethod
    def read(cls, path: Path) -> Noise:
        """Map the file."""
        return cls(map_npz(path))

    def covers(self, name: str, actual: Array, expected: Array) -> bool:
        """Whether an output's error is within the noise."""
        if expected.dtype.kind in "biu":
            mask = self.arrays.get(f"{MASK}{name}")
            return mask is not None and not bool(((actual != expected) & (mask == 0)).any())
        top, rms = (self.arrays.get(f"{kind}{name}") for kind in (MAX, RMS))
        if top is None or rms is None:
            return False
        if self.of(name, expected) > CEILING:
            return self._jumps(name, actual, expected)
        found = difference(actual, self.arrays.get(f"{TRUTH}{name}", expected))
        return (
            not found.odd_result
            and not found.odd_reference
            and found.max_abs <= FACTOR * float(top)
            and found.rms <= FACTOR * float(rms)
        )

    def _jumps(self, name: str, actual: Array, expected: Array) -> bool:
        """Whether each element is what one of the framework's own results has there.

        Rounding may exchange two rows with nearly equal scores: their boxes are far from the
        reference's, but known. All others must be near the reference.
        """
        runs = self.arrays.get(f"{RUNS}{name}")
        if runs is None or not (np.isfinite(actual).all() and np.isfinite(expected).all()):
            return False
        gaps = np.abs(runs.astype(np.float64) - expected)
        jump = np.any([jumping(each) for each in gaps], axis=0)
        calm = float(gaps[:, ~jump].max(initial=0.0))
        if jump.mean() > SHARE or calm > CEILING * float(np.abs(expected).max(initial=0.0)):
            return False
        found = actual.astype(np.float64)
        nearest = np.where(jump, np.abs(found - runs).min(axis=0), np.inf)
        return bool((np.minimum(nearest, np.abs(found - expected)) <= FACTOR * calm).all())

    def of(self, name: str, expected: Array) -> float:
        """Return an output's noise as an error: its deviation over the largest magnitude."""
        top = self.arrays.get(f"{MAX}{name}")
        finite = np.abs(expected[np.isfinite(expected)]) if expected.dtype.kind in "fc" else None
        scale = 0.0 if finite is None else float(finite.max(initial=0.0))
        return float(top) / scale if top is not None and scale else 0.0
