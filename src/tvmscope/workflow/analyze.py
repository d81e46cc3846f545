"""The main job, from a model to a saved session. Read this file first: it is the product's plan.

load -> plan the rows (and search, for stock TVM tuned) -> compile each -> verify, measure in turns
and compare -> report the first divergence, if there is one -> profile each kernel -> diagnose ->
(fix, and measure again) -> save -> report
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.progress import Progress, Silent
from tvmscope.stages.build import build_rows
from tvmscope.stages.facts import diagnosed
from tvmscope.stages.job import Job, begun
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows, without_needless_export
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.profile import profile_rows
from tvmscope.stages.race import by_framework, not_yet, race
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.job.stock import with_searched
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.records.lookup import records_of
from tvmscope.workflow.bisecting.bisect import suspect
from tvmscope.workflow.fixing.fix import fix_rows


def analyze(model: Any, options: Options, progress: Progress | None = None) -> Session:
    """Compile, verify and measure a model, and save the session in its own folder."""
    progress = progress or Silent()
    if options.fix and not options.profile:
        raise UsageError(msg("--fix needs kernel profiles: omit --no-profile"))
    where = resolve_targets(options)
    options = without_needless_export(options, where)
    place = "+".join(target.device for target in where)
    with begun(model, options, where, place, progress) as job:
        if options.tune_first:
            _tune_first(model, job)
        return measure(job)


def measure(job: Job) -> Session:
    """Measure a loaded model; each step is saved, also if the next is interrupted."""
    options = job.options
    rows = build_and_race(job)
    _say_what_diverges(job)
    if options.profile:
        job.keep_each(profile_rows(job, rows))
    if options.fix:
        job.keep(diagnosed(job.session))
        job.keep_each(fix_rows(job, rows))  # a prediction is saved before its fix is built
    job.keep(diagnosed(job.session))
    return job.finish()


def build_and_race(job: Job) -> list[PlannedRow]:
    """Plan, compile, verify, time and compare the rows; the session has the results."""
    options, ready = job.options, job.ready
    rows = plan_rows(options, job.session.targets, ready.model.format, records_of(options.db))
    rows = with_searched(rows, job)
    built = build_rows(
        rows, ready, options, job.artifacts, job.progress,
        on_update=lambda entries: job.keep_race(not_yet(entries)),
    )  # fmt: skip
    raced = race(
        built, options, by_framework(ready), job.progress,
        on_update=job.keep_race, log_dir=job.logs,
    )  # fmt: skip
    job.keep_race(raced)
    return rows


def _tune_first(model: Any, job: Job) -> None:
    """Tune in a separate session; its records become a row of this one."""
    own = job.options.output / "tuning" if job.options.output else None
    tuned = tune(model, replace(job.options, output=own), job.progress)
    job.session = replace(job.session, tuning=tuned.tuning, warnings=tuned.warnings)


def _say_what_diverges(job: Job) -> None:
    """Add warnings about rows that failed verification."""
    found = suspect(job.session, job.ready, job.options, job.folder / "bisect", job.progress)
    job.keep(replace(job.session, warnings=(*job.session.warnings, *found)))
