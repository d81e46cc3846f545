"""The skeleton of a job: claim a folder, load, begin a session, save it at each step, finish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tvmscope.core.model import Model, Prepared
from tvmscope.core.session import Session, save
from tvmscope.core.target import Target
from tvmscope.machine import environment
from tvmscope.progress import Progress
from tvmscope.stages import places, reports
from tvmscope.stages.facts import informed
from tvmscope.stages.load import loaded
from tvmscope.stages.measure_rows import MeasuredRows
from tvmscope.stages.options import Options
from tvmscope.stages.targets import threads_of


@dataclass(kw_only=True)
class Job:
    """A running job on one model: its session grows, and is saved after each step."""

    ready: Prepared
    options: Options
    progress: Progress
    folder: Path
    session: Session
    saved: bool = False

    @property
    def artifacts(self) -> Path:
        """The folder of the artifacts of its rows."""
        return self.folder / places.ARTIFACTS

    @property
    def logs(self) -> Path:
        """Where its workers write."""
        return self.folder / "logs"

    def keep(self, session: Session) -> Session:
        """Save the current session."""
        self.session = session
        save(session, self.folder)
        self.saved = True
        return session

    def keep_each(self, steps: Iterable[Session]) -> Session:
        """Save the session after each step of a stage."""
        for session in steps:
            self.keep(session)
        return self.session

    def keep_measured(self, measured: MeasuredRows) -> Session:
        """Save the session with the measurements so far."""
        return self.keep(
            replace(self.session, results=measured.results, comparisons=measured.comparisons)
        )

    def save_complete(self) -> Session:
        """Save the session as a whole one."""
        return self.keep(informed(replace(self.session, complete=True)))

    def write_reports(self) -> None:
        """Render the session into its folder."""
        reports.write(self.session, self.folder, self.progress, redacted=self.options.redact)


@contextmanager
def loaded_job(
    model: Any, options: Options, targets: Sequence[Target], label: str, progress: Progress
) -> Iterator[Job]:
    """Load the model and begin a session; at the end, also after an error, the user is shown where
    the session is saved.

    `label` goes into the folder's name, between the model's name and the time.
    """
    started = datetime.now(UTC)
    if options.output is not None:
        places.claim(options.output, force=options.force)
    with loaded(model, options, progress) as ready:
        job = Job(
            ready=ready,
            options=options,
            progress=progress,
            folder=options.output or places.session_folder(ready.model.name, label, started),
            session=replace(begin(ready.model, options, targets, started), complete=False),
        )
        try:
            yield job
        finally:
            if job.saved:
                progress.saved(job.folder)


def begin(
    model: Model, options: Options, targets: Sequence[Target] = (), started: datetime | None = None
) -> Session:
    """Return a session of a model with everything but results."""
    return Session(
        command=options.command,
        started=(started or datetime.now(UTC)).isoformat(timespec="seconds"),
        environment=environment.collect(threads_of(options)),
        model=model,
        targets=tuple(targets),
    )
