"""One tuning run: its subject, and the facts about the untuned model."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from tvmscope.core.options import CompileOptions
from tvmscope.core.profile import Profile
from tvmscope.core.target import Target
from tvmscope.stages.builder import Builder
from tvmscope.stages.job import Job
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.targets import threads_of
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.trials.workshop import Workshop


@dataclass(kw_only=True)
class TuningRun:
    """A job that tunes, with its growing session, and its further data."""

    job: Job
    target: Target
    scratch: Path
    database: Database
    began: float
    row: PlannedRow
    """The untuned model's row."""
    builder: Builder | None = None
    workshop: Workshop | None = None
    profile: Profile | None = None
    """The profile of the untuned model; None if nothing can run it."""
    weights_bytes: int = 0
    """The size of the untuned artifact, which is mostly weights; a GPU's are not kept cold."""
    build_s: float = 0.0
    """The time to compile the untuned model; the tuned one takes as long."""
    load_s: float = 0.0
    """The time to load and profile the untuned model: loading and verifying takes no longer."""

    @property
    def threads(self) -> int:
        return threads_of(self.job.options)

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run the model itself."""
        return self.row.unavailable is None

    @property
    def config(self) -> CompileOptions:
        """The options of the untuned model."""
        options = self.job.options
        return replace(options.compile, precision=options.precisions[0], choices={})

    def spent_s(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self.began
