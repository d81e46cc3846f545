"""The main job, from a model to a saved session. Read this file first: it is the product's plan.

load -> choose targets -> compile each variant -> verify and measure, interleaved -> compare
-> say what diverges first, where something does -> profile kernel by kernel -> diagnose
-> (fix, and measure again) -> save -> report
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tvmscope.benchmark.run import compare_all, run
from tvmscope.core.measurement import Result
from tvmscope.core.model import Prepared
from tvmscope.core.session import Session, save
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.progress import Progress, Silent
from tvmscope.workflow import environment, fix, places, profile, reports, stages
from tvmscope.workflow.bisect import suspect
from tvmscope.workflow.facts import diagnosed
from tvmscope.workflow.options import Options


def analyze(model: Any, options: Options, progress: Progress | None = None) -> Session:
    """Compile, verify and measure a model, and save the session in its own folder."""
    progress = progress or Silent()
    started = datetime.now(UTC)
    if options.output is not None:
        places.claim(options.output, force=options.force)
    if options.fix and not options.profile:
        raise UsageError("--fix works on kernel profiles: leave --no-profile out")
    stages.known_backends(options)  # before a load that may take minutes
    where = stages.resolve_targets(options)
    tuned = _tuned_first(model, options, progress) if options.tune_first else None
    progress.stage("load", stages.name_of(model))
    with stages.prepared(model, stages.without_needless_export(options, where)) as ready:
        for note in ready.model.notes:
            progress.note(note)
        label = "+".join(target.device for target in where)
        folder = options.output or places.session_folder(ready.model.name, label, started)
        session = begin(ready, options, where, started)
        if tuned is not None:
            session = replace(session, tuning=tuned.tuning, warnings=tuned.warnings)
        try:
            session = measure(session, ready, options, folder, progress)
            reports.write(session, folder, progress, redacted=options.redact)
            return session
        finally:
            progress.note(f"session: {folder}")


def _tuned_first(model: Any, options: Options, progress: Progress) -> Session:
    """Tune in a session of its own; the records that it leaves become a row of this one."""
    from tvmscope.workflow.tune import tune  # which builds on this module

    own = options.output / "tuning" if options.output else None
    return tune(model, replace(options, output=own), progress)


def begin(
    ready: Prepared, options: Options, where: tuple[Target, ...], started: datetime
) -> Session:
    """A session with everything but results."""
    return Session(
        command=options.command,
        started=started.isoformat(timespec="seconds"),
        environment=environment.collect(stages.threads_of(options)),
        model=ready.model,
        targets=where,
        complete=False,
    )


def measure(
    session: Session, ready: Prepared, options: Options, folder: Path, progress: Progress
) -> Session:
    """Compile, bench and profile every row; what is done is on disk, also when interrupted."""
    store = _Store(session, folder)
    rows = stages.plan_rows(options, session.targets, ready.model.format)
    with ExitStack() as compilers:  # an interruption ends them
        results = run(
            stages.plan_entries(rows, ready, options, folder / "artifacts", compilers),
            options.measure,
            reference=ready.reference_path,
            reference_name=stages.REFERENCES[ready.model.format],
            tolerances=partial(stages.tolerance, options),
            atol=options.atol,
            progress=progress,
            on_update=store.update,
            log_dir=folder / "logs",
        )
    store.update(results)
    suspicions = suspect(store.session, ready, options, folder / "bisect", progress)
    store.keep(replace(store.session, warnings=(*store.session.warnings, *suspicions)))
    if options.profile:
        for profiled in profile.profile_rows(store.session, rows, ready, options, folder, progress):
            store.keep(profiled)
    if options.fix:
        found = store.keep(diagnosed(store.session))
        for step in fix.fix_rows(found, rows, ready, options, folder, progress):
            store.keep(step)  # a prediction is saved before its fix is built
    return store.keep(diagnosed(replace(store.session, complete=True)))


class _Store:
    """Keeps the session on disk up to date."""

    def __init__(self, session: Session, folder: Path) -> None:
        self.session = session
        self.folder = folder
        save(session, folder)

    def update(self, results: tuple[Result, ...]) -> None:
        """Save what is there so far."""
        self.keep(replace(self.session, results=results, comparisons=compare_all(results)))

    def keep(self, session: Session) -> Session:
        """Save the session as it now is."""
        self.session = session
        save(session, self.folder)
        return session
