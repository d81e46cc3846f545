"""Measures one problem of a suite under its limits, and makes its row, whatever happens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tvmscope.core.prepared import operators
from tvmscope.core.session import FILE_NAME, Session
from tvmscope.core.suite import SuiteRow
from tvmscope.machine import environment
from tvmscope.measure.confinement import Confinement, confined
from tvmscope.measure.fork_server import ForkServer
from tvmscope.progress import Progress, Silent
from tvmscope.stages.device import on_device
from tvmscope.stages.diagnose import diagnose_session
from tvmscope.stages.job import loaded_job
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import with_needed_export
from tvmscope.stages.profile import profile_rows
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.workflow.analyze import build, measure, plan
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.problems import Problem
from tvmscope.workflow.suiting.rows import failed_row, fallbacks_of, ours_of, row_of
from tvmscope.workflow.suiting.store import Store

BEHIND = 0.9
"""Below this speed-up a problem is profiled, so that its row can give a reason."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A problem's session, and the artifact's data for its row."""

    session: Session
    fallbacks: tuple[str, ...] = ()
    operators: int | None = None


Examiner = Callable[[str, Options, Progress], Examined]
"""Measures one model and saves its session in the options' folder."""


def run_problem(
    problem: Problem,
    key: str,
    options: Options,
    how: SuiteOptions,
    store: Store,
    server: ForkServer | None,
    progress: Progress,
    examiner: Examiner,
) -> SuiteRow:
    """Return the row of a problem. Only an interruption by the user is raised."""
    if server is not None:
        server.start()  # restart it if the last problem killed it: not on this one's time
    started = time.monotonic()
    folder = store.session_folder(problem.name)
    shutil.rmtree(folder, ignore_errors=True)
    store.clear_scratch()
    store.scratch.mkdir(parents=True)
    own = replace(options, output=folder, force=True)
    where = str(folder.relative_to(store.folder))
    try:
        with confined(_limits(how, store.scratch, server)):
            source = problem.anywhere if how.enter else problem.source
            done = examiner(source, own, progress)
        row = row_of(
            done.session,
            problem=problem.name,
            key=key,
            took_s=time.monotonic() - started,
            fallbacks=done.fallbacks,
            operators=done.operators,
            folder=where,
        )
    except Exception as e:  # a suite continues after any error; the row has the error
        row = failed_row(
            e,
            problem=problem.name,
            key=key,
            took_s=time.monotonic() - started,
            environment=environment.collect(threads_of(options)),
            session=where if (folder / FILE_NAME).is_file() else None,
        )
    finally:
        store.clear_scratch()
        if not how.keep:
            shutil.rmtree(folder / "artifacts", ignore_errors=True)
    return row


def _limits(how: SuiteOptions, scratch: Path, server: ForkServer | None) -> Confinement:
    return Confinement(
        deadline=time.monotonic() + how.timeout_s,
        memory_bytes=how.memory_limit_bytes,
        disk_bytes=how.disk_limit_bytes(scratch),
        scratch=scratch,
        enter=how.enter,
        server=server,
    )


@on_device
def examine(profile: bool, source: str, options: Options, progress: Progress) -> Examined:
    """Compile, verify, time and compare; with `profile`, time kernels if another backend is
    faster."""
    targets = resolve_targets(options)
    options = with_needed_export(options, targets)
    with loaded_job(source, options, targets, "suite", Silent()) as job:
        rows = plan(job)
        measure(job, build(job, rows))
        if profile and is_behind(job.session):
            ours = [row for row in rows if row.key.is_ours]
            job.keep_each(profile_rows(job, ours))
        job.keep(replace(diagnose_session(job.session), complete=True))
        return Examined(
            session=job.session,
            fallbacks=fallbacks_of(job.folder, ours_of(job.session)),
            operators=len(operators.read(job.ready.folder).names) or None,
        )


def is_behind(session: Session) -> bool:
    """Whether another backend is clearly faster than our row."""
    ours = ours_of(session)
    return ours is not None and any(
        c.speedup < BEHIND and c.verdict == "slower"
        for c in session.comparisons
        if c.key == ours.key
    )
