"""Stock TVM, tuned: MetaSchedule searches the kernels of TVM's own pipeline, within a budget.

None of our rules takes part: a task has no parameters, only the traces that MetaSchedule proposes.
Candidates are built, checked and timed as those of `tune`, and recorded as trials of a search, so
that a later run continues where this one ended. They never become choices of our own rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.core.options import CompileOptions
from tvmscope.core.tuning import Choice, TuningTask
from tvmscope.errors import TvmscopeError
from tvmscope.messages import Seconds, Text, msg
from tvmscope.stages.builder import Builder
from tvmscope.stages.job import Job
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.tuning.job import setup
from tvmscope.tuning.job.view import progress_line
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.search.loop import Limits, Search
from tvmscope.tuning.tuning_run import TuningRun

_BATCH_PER_CORE = 4
_ASSUMED_FLOPS = 1e9
"""Flops per second of TVM's plain loops: tasks are weighted by it until they are measured."""
_SMALL = 0.001
"""Tasks below this share of the work keep TVM's schedules."""


def search_rows(rows: Sequence[PlannedRow], job: Job) -> list[PlannedRow]:
    """Return the rows; those that need a search have the schedules that it finds."""
    return [_searched(row, job) if _wants(row) else row for row in rows]


def _wants(row: PlannedRow) -> bool:
    return row.backend.searches and row.unavailable is None


def _searched(row: PlannedRow, job: Job) -> PlannedRow:
    """The row with its schedules, or with the reason why it has none."""
    job.progress.stage(msg("search"), row.key.label)
    try:
        search = _search(row, job)
    except TvmscopeError as e:
        return replace(row, unavailable=e.message)
    found = {key: s.best for key, s in search.states.items() if s.best.trace is not None}
    tried = sum(len(state.tried) for state in search.states.values())
    if not found:
        return replace(row, unavailable=_nothing(search, tried))
    host = records.host(row.target, search.workshop.setting.threads)
    choices = {
        key: Choice(
            candidate=best, source="metaschedule", cpu=host.cpu, threads=host.threads,
            date=time.strftime("%Y-%m-%d", time.gmtime()),
        )
        for key, best in found.items()
    }  # fmt: skip
    said = msg(
        "MetaSchedule searched for {time}: {tried} schedules tried, a faster one found for "
        "{found} of {count} kernels",
        time=Seconds(search.elapsed_s),
        tried=tried,
        found=len(found),
        count=len(search.states),
    )
    return replace(row.changed(tuning="metaschedule"), choices=choices, warnings=(said,))


def _nothing(search: Search, tried: int) -> Text:
    failures = search.proposer.failures.values() if search.proposer else ()
    return msg(
        "MetaSchedule found no schedule in {time} ({tried} tried{why}); give it more time with "
        "--tvm-budget",
        time=Seconds(search.elapsed_s),
        tried=tried,
        why=msg("; {reason}", reason=next(iter(failures))) if failures else "",
    )


def _search(row: PlannedRow, job: Job) -> Search:
    with TemporaryDirectory(prefix="tvmscope-") as scratch, ExitStack() as stack:
        run = TuningRun(
            job=job,
            target=row.target,
            scratch=Path(scratch),
            database=Database(records.file_to_write(job.options.db, row.target)),
            began=time.monotonic(),
            row=row,
        )
        with Builder(job.ready, run.threads) as builder:
            config = _config(row, job.options.compile)
            tasks = builder.tasks(row.target, config, run.scratch / "functions")
        deadline = time.monotonic() + job.options.tvm_budget_s
        batch = _BATCH_PER_CORE * run.threads
        search = Search(
            _weighed(tasks),
            setup.workshop(run, stack),
            run.database,
            Limits(deadline=deadline),
            proposer=setup.proposer(run, stack, batch),
            batch=batch,
            on_trial=lambda search, state: job.progress.step(
                search.elapsed_s,
                job.options.tvm_budget_s,
                progress_line(search, state, deadline - time.monotonic()),
            ),
        )
        search.run()
        return search


def _config(row: PlannedRow, options: CompileOptions) -> CompileOptions:
    pipeline = row.variant.pipeline or ""
    return replace(options, pipeline=pipeline, precision=row.variant.precision, choices={})


def _weighed(tasks: Sequence[TuningTask]) -> list[PlannedTask]:
    """Return tasks by the time that plain loops would take: nothing is measured yet."""
    times = {t.key: t.calls * max(t.flops or 0.0, t.bytes or 0.0) / _ASSUMED_FLOPS for t in tasks}
    whole = sum(times.values()) or 1.0
    planned = [
        PlannedTask(task=t, total_s=times[t.key], share=times[t.key] / whole, least_s=0.0)
        for t in tasks
    ]
    return [p for p in planned if p.share >= _SMALL]
