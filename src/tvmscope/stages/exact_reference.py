"""Runs a PyTorch model in float64 once per job, for rows whose own error matters: those on a GPU
and in half precision.

The framework's float32 outputs have an error of their own, which would count as the row's.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.benchmark.verify import FLOAT64, verify
from tvmscope.core.precision import FLOAT32
from tvmscope.core.row import Task
from tvmscope.errors import RunError, TvmscopeError, one_line
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import run_within
from tvmscope.messages import msg
from tvmscope.progress import Progress

if TYPE_CHECKING:
    import tvmscope.models.sensitivity

TIMEOUT_S = 60.0
"""The time for the model's loading and its run; a job does not wait longer for better numbers."""
_TRUTH = remote(lambda: tvmscope.models.sensitivity.write_truth)


class ExactReference:
    """Keeps the outputs in float64 of one prepared model; without a folder there are none."""

    def __init__(self, folder: Path | None, framework: Path, progress: Progress) -> None:
        self._folder, self._framework, self._progress = folder, framework, progress
        self._lock = threading.Lock()

    def of(self, task: Task) -> Path | None:
        """Return the file with the outputs that the task's are compared with first; None if the
        framework's own are the only ones."""
        precise = task.key.device == "cpu" and not task.variant.precision.is_half
        if self._folder is None or precise:
            return None
        with self._lock:
            file, refused = self._folder / "truth.npz", self._folder / "no-truth.txt"
            if not file.is_file() and not refused.is_file():  # a job may measure several times
                self._compute(self._folder, file, refused)
            return file if file.is_file() else None

    def _compute(self, folder: Path, file: Path, refused: Path) -> None:
        made = folder / "truth-made.npz"
        try:
            run_within(TIMEOUT_S, _TRUTH, str(folder), str(made))
            # code that names float32, or that draws numbers, gives something else
            apart = verify(self._framework, made, FLOAT32.tolerance, FLOAT64)
            if not apart.passed:
                raise RunError(msg("it gives other outputs in float64"))
        except TvmscopeError as e:
            self._progress.note(
                msg(
                    "outputs are compared with the framework's float32: the model has no float64 "
                    "reference: {reason}",
                    reason=one_line(e),
                )
            )
            refused.touch()
            return
        made.rename(file)
