"""Estimates a model's sensitivity to rounding when a row is over its tolerance, once per
precision."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.precision import Precision
from tvmscope.core.row import Task
from tvmscope.errors import TvmscopeError
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import run_within

if TYPE_CHECKING:
    import tvmscope.models.sensitivity

_ESTIMATE = remote(lambda: tvmscope.models.sensitivity.estimate)
_BITS = {"float32": 23, "float16": 10, "bfloat16": 7, "tf32": 10}
"""Bits of the mantissa, by dtype or math mode."""


class Sensitivity:
    """Keeps the estimates of one prepared model; without a folder there are none."""

    def __init__(self, folder: Path | None, timeout_s: float) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._known: dict[int, Path | None] = {}

    def of(self, task: Task) -> Path | None:
        """Return the file with the estimate for the task's precision; None if there can be none."""
        if self._folder is None:
            return None
        bits = _bits(task.variant.precision)
        with self._lock:
            if bits not in self._known:
                self._known[bits] = self._estimated(self._folder, bits)
            return self._known[bits]

    def _estimated(self, folder: Path, bits: int) -> Path | None:
        file = folder / f"sensitivity-{bits}.npz"
        try:
            run_within(self._timeout_s, _ESTIMATE, str(folder), str(file), 2.0**-bits)
        except TvmscopeError:  # without an estimate only the tolerance counts: the row is wrong
            return None
        return file


def _bits(precision: Precision) -> int:
    return _BITS["tf32" if precision.math == "tf32" else precision.dtype]
