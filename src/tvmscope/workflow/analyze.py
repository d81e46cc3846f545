"""The main job, from a model to a saved session. Read this file first: it is the product's plan.

1. load the model, in a worker process
2. plan the rows of the table, and search schedules for stock TVM where its tuned row is asked for
3. build the rows that are compiled here
4. measure the rows: verify the outputs, time all rows in turns, compare them
5. explain wrong rows: which operator diverges first
6. profile the rows, kernel by kernel
7. diagnose why rows are slow
8. fix: build, verify and measure what the diagnosis proposes, and keep what helps
9. save the session as a complete one, and write its reports

The session is saved after each step, so that an interrupted job keeps what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvmscope.benchmark.entry import Entry
from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.progress import Progress, Silent
from tvmscope.stages.build import build_rows
from tvmscope.stages.device import on_device
from tvmscope.stages.diagnose import diagnose_session
from tvmscope.stages.job import Job, loaded_job
from tvmscope.stages.measure_rows import framework_outputs, measure_rows, unmeasured
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows, with_needed_export
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.profile import profile_rows
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.job.stock import search_rows
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.records.lookup import records_of
from tvmscope.workflow.bisecting.bisect import explain_wrong_rows
from tvmscope.workflow.fixing.fix import fix_rows


@on_device
def analyze(model: Any, options: Options, progress: Progress | None = None) -> Session:
    """Compile, verify and measure a model, and save the session in its own folder."""
    progress = progress or Silent()
    if options.fix and not options.profile:
        raise UsageError(msg("--fix needs kernel profiles: omit --no-profile"))
    targets = resolve_targets(options)
    options = with_needed_export(options, targets)
    label = "+".join(target.device for target in targets)
    with loaded_job(model, options, targets, label, progress) as job:
        if options.tune_first:
            _tune_first(model, job)
        return analyze_loaded(job)


def analyze_loaded(job: Job) -> Session:
    """The steps behind loading."""
    rows = plan(job)
    entries = build(job, rows)
    measure(job, entries)
    explain_wrong(job)
    if job.options.profile:
        job.keep_each(profile_rows(job, rows))
    job.keep(diagnose_session(job.session))
    if job.options.fix:
        job.keep_each(fix_rows(job, rows))  # a prediction is saved before its fix is built
        job.keep(diagnose_session(job.session))
    session = job.save_complete()
    job.write_reports()
    return session


def plan(job: Job) -> list[PlannedRow]:
    """The rows that were asked for; those of stock TVM tuned with what a search finds for them."""
    options, model = job.options, job.ready.model
    rows = plan_rows(options, job.session.targets, model.format, records_of(options.db))
    return search_rows(rows, job)


def build(job: Job, rows: Sequence[PlannedRow]) -> Sequence[Entry]:
    """An entry for each row, with the artifact where the row is compiled here."""
    return build_rows(
        rows, job.ready, job.options, job.artifacts, job.progress,
        on_update=lambda entries: job.keep_measured(unmeasured(entries)),
    )  # fmt: skip


def measure(job: Job, entries: Sequence[Entry]) -> None:
    """Verify, time and compare the rows; the session gets results and comparisons."""
    measured = measure_rows(
        entries, job.options, framework_outputs(job.ready), job.progress,
        on_update=job.keep_measured, log_dir=job.logs,
    )  # fmt: skip
    job.keep_measured(measured)


def explain_wrong(job: Job) -> None:
    """A warning for each row that failed verification: which operator diverges first."""
    found = explain_wrong_rows(
        job.session, job.ready, job.options, job.folder / "bisect", job.progress
    )
    job.keep(replace(job.session, warnings=(*job.session.warnings, *found)))


def _tune_first(model: Any, job: Job) -> None:
    """Tune in a separate session; its records become a row of this one."""
    own = job.options.output / "tuning" if job.options.output else None
    tuned = tune(model, replace(job.options, output=own), job.progress)
    job.session = replace(job.session, tuning=tuned.tuning, warnings=tuned.warnings)
