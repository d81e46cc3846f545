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
from tvmscope.stages.options import Options
from tvmscope.stages.race import Raced
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
        """The folder of its workers' logs."""
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

    def keep_race(self, raced: Raced) -> Session:
        """Save the session with the measurements so far."""
        return self.keep(
            replace(self.session, results=raced.results, comparisons=raced.comparisons)
        )

    def finish(self) -> Session:
        """Save the complete session, and its reports beside it."""
        done = self.keep(informed(replace(self.session, complete=True)))
        reports.write(done, self.folder, self.progress, redacted=self.options.redact)
        return done


@contextmanager
def begun(
    model: Any, options: Options, where: Sequence[Target], place: str, progress: Progress
) -> Iterator[Job]:
    """Yield a job with its model loaded; at the end, also after an error, show the user where it is
    saved.

    `place` is a part of the folder's name, between the model's name and the time.
    """
    started = datetime.now(UTC)
    if options.output is not None:
        places.claim(options.output, force=options.force)
    with loaded(model, options, progress) as ready:
        job = Job(
            ready=ready,
            options=options,
            progress=progress,
            folder=options.output or places.session_folder(ready.model.name, place, started),
            session=replace(begin(ready.model, options, where, started), complete=False),
        )
        try:
            yield job
        finally:
            if job.saved:
                progress.saved(job.folder)


def begin(
    model: Model, options: Options, where: Sequence[Target] = (), started: datetime | None = None
) -> Session:
    """Return a session of a model with everything but results."""
    return Session(
        command=options.command,
        started=(started or datetime.now(UTC)).isoformat(timespec="seconds"),
        environment=environment.collect(threads_of(options)),
        model=model,
        targets=tuple(where),
    )
