"""One tuning run: what it works on, and what it knows about the untuned model."""

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
class Tuned:
    """A job that tunes, with its session as it grows, and what it needs besides."""

    job: Job
    target: Target
    scratch: Path
    database: Database
    began: float
    row: PlannedRow
    """The untuned model's."""
    builder: Builder | None = None
    workshop: Workshop | None = None
    profile: Profile | None = None
    """Of the untuned model; None where nothing can run it."""
    weights_bytes: int = 0
    """Of the untuned artifact, which is little else than weights; a GPU's are not kept cold."""
    build_s: float = 0.0
    """What compiling the untuned model took; the tuned one takes as long."""
    load_s: float = 0.0
    """What loading and profiling the untuned model took: loading and verifying takes no longer."""

    @property
    def threads(self) -> int:
        return threads_of(self.job.options)

    @property
    def runs_here(self) -> bool:
        """Whether this machine can run the model itself."""
        return self.row.unavailable is None

    @property
    def config(self) -> CompileOptions:
        """Of the untuned model."""
        options = self.job.options
        return replace(options.compile, precision=options.precisions[0], choices={})

    def spent_s(self) -> float:
        """Since the start of everything."""
        return time.monotonic() - self.began
