"""Tuning, from a model to a proven faster one: plan, search, validate, prove.

load -> compile and profile untuned -> list what can be tuned -> plan -> search -> validate the best
-> compile with them -> verify and measure beside the untuned model -> only then record them as used
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg, msgn
from tvmscope.progress import Progress, Silent
from tvmscope.stages.device import on_device
from tvmscope.stages.facts import informed
from tvmscope.stages.job import loaded_job
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import (
    can_cross_compile,
    candidates,
    plan_rows,
    why_unavailable,
    with_export,
)
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.job import setup
from tvmscope.tuning.job.view import progress_line, tuned_tasks
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.proof import prove
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database
from tvmscope.tuning.search.loop import Limits, Search
from tvmscope.tuning.search.state import State
from tvmscope.tuning.trials.workshop import Workshop
from tvmscope.tuning.tuning_run import TuningRun

_BATCH_PER_CORE = 4
_LEAST_S = 15.0
"""A shorter search is not worth starting."""
_USEFUL_S = 3.0
"""Less time is hardly enough for one batch of candidates: then there is nothing new to prove."""
_USEFUL_SHARE = 0.25
"""The least share of the budget for a search, if the preparation took longer than expected."""
_AGAIN = 0.05
"""If validation leaves at least this share of the budget, the search continues."""
_AGAIN_LEAST_S = 6.0
"""The same for short budgets: time for a few batches of candidates and their validation."""


@on_device
def tune(
    model: Any, options: Options, progress: Progress | None = None, *, dry_run: bool = False
) -> Session:
    """Search within the budget and prove the result; with `dry_run` only plan."""
    progress = progress or Silent()
    began = time.monotonic()
    target, options = _one(options, dry_run=dry_run)
    file = records.file_to_write(options.db, target)
    place = f"tune-{target.label}"
    with (
        loaded_job(model, options, (target,), place, progress) as job,
        TemporaryDirectory(prefix="tvmscope-") as scratch,
        ExitStack() as stack,
    ):
        if dry_run:  # a dry run leaves no files
            job.folder = Path(scratch) / "session"
        (row,) = plan_rows(options, (target,), job.ready.model.format)
        run = TuningRun(
            job=job,
            target=target,
            scratch=Path(scratch),
            database=Database(file),
            began=began,
            row=row,
        )
        planned = setup.plan(run, stack)
        job.session = informed(replace(job.session, tuning=tuned_tasks(planned), complete=dry_run))
        if dry_run:
            return job.session
        try:
            return _tune(run, planned, stack)
        finally:
            if file.exists():  # absent if nothing was tried
                progress.note(msg("records: {file}", file=file))


def _one(options: Options, *, dry_run: bool) -> tuple[Target, Options]:
    """Return one target and precision; only our own rows are compared.

    A target that this machine cannot run needs one that can; a plan without times needs none.
    """
    if len(options.targets) != 1 or len(options.precisions) != 1:
        raise UsageError(msg("tune takes one target and one precision; run it once for each"))
    (target,) = resolve_targets(options)
    own = with_export(replace(options, backends=("tvmscope",), graph=False), wanted=False)
    ((_target, _precision, backend),) = candidates(own, (target,))
    why = why_unavailable(backend, target)
    if why is not None and not can_cross_compile(backend):
        raise UsageError(msg("{target} cannot be tuned: {why}", target=target.label, why=why))
    if why is not None and not (dry_run or options.tune.tracker):
        raise UsageError(
            msg(
                "{target} cannot be tuned here: {why}; tune on a machine that runs it, or "
                "through a farm that has one: --tracker HOST:PORT --key NAME; --dry-run lists "
                "its tasks",
                target=target.label,
                why=why,
            )
        )
    return target, own


def _tune(run: TuningRun, planned: Sequence[PlannedTask], stack: ExitStack) -> Session:
    """Search, validate and prove; however it ends, the session contains the results so far."""
    chosen = [p for p in planned if p.reason is None]
    run.job.keep(run.job.session)
    search: Search | None = None
    workshop = setup.workshop(run, stack)
    proof = prove.begin(run, workshop, [p.task.key for p in chosen])
    try:
        proves = not chosen or _has_time(run, len(chosen), proof)
        if chosen:
            deadline = _deadline(run, len(chosen), proof) if proves else _end_without_proof(run)
            search = _prepare_search(run, chosen, workshop, stack, deadline)
            if proves:
                _search_and_validate(run, search, proof)
            else:
                _only_search(run, search)
            _tell_unseeded(run, search)
        if search and proves:
            if not any(state.tried for state in search.states.values()):
                proof.reason = msg("no candidate was tried")
            prove.explain(run, proof, list(search.states.values()), workshop)
        workshop.close()
        if proves:
            proof = prove.prove(run, proof)
    finally:
        searched = search.states if search else {}
        tuned = replace(run.job.session, tuning=tuned_tasks(planned, searched, proof))
        run.job.keep(informed(tuned))
    session = run.job.save_complete()
    run.job.write_reports()
    return session


def _has_time(run: TuningRun, tasks: int, proof: prove.Proof) -> bool:
    """Whether the budget leaves time to search and to prove; otherwise report the reason."""
    if _deadline(run, tasks, proof) - time.monotonic() > _USEFUL_S:
        return True
    reserve_s = prove.least_reserve_s(run, proof)
    proof.reason = msg(
        "a budget of {budget:.0f} s leaves no time to search and to prove, because preparing took "
        "{spent:.0f} s and the proof may take {reserve:.0f} s: {left:.0f} s are searched without a "
        "proof, and the next run continues from there; give at least {least}m",
        budget=run.job.options.tune.budget_s,
        spent=run.spent_s(),
        reserve=reserve_s,
        left=_end_without_proof(run) - time.monotonic(),
        least=ceil((run.spent_s() + reserve_s + _LEAST_S) / 60),
    )
    warning = msg("not tuned: {reason}", reason=proof.reason)
    run.job.progress.note(warning)
    run.job.session = replace(run.job.session, warnings=(*run.job.session.warnings, warning))
    return False


def _deadline(run: TuningRun, tasks: int, proof: prove.Proof) -> float:
    """Return when the search must end, so that validation and proof end within the budget.

    If little time is left, fewer tasks can be searched and validated: the time reserved for that
    shrinks to one task before the search becomes too short to be useful.
    """
    whole = _end(run) - prove.reserve_s(run, tasks, proof)
    least = _end(run) - prove.least_reserve_s(run, proof)
    return max(whole, min(least, time.monotonic() + _LEAST_S))


def _end(run: TuningRun) -> float:
    """Return when the budget is used up."""
    return run.began + run.job.options.tune.budget_s


def _end_without_proof(run: TuningRun) -> float:
    """Return when a search without a proof ends: with the budget, but not before it is useful.

    If the preparation alone uses up the budget, no run would otherwise ever get further.
    """
    useful_s = min(_LEAST_S, _USEFUL_SHARE * run.job.options.tune.budget_s)
    return max(_end(run), time.monotonic() + useful_s)


def _only_search(run: TuningRun, search: Search) -> None:
    """Make trials for a later run, which finds them in the records."""
    run.job.progress.stage(msg("search"), _tasks(len(search.states)))
    search.run()


def _search_and_validate(run: TuningRun, search: Search, proof: prove.Proof) -> None:
    """Search, then validate; continue the search in the time that validation did not need."""
    states = list(search.states.values())
    again_s = max(_AGAIN_LEAST_S, _AGAIN * run.job.options.tune.budget_s)
    while True:
        run.job.progress.stage(msg("search"), _tasks(len(states)))
        search.run()
        ended_early = time.monotonic() < search.limits.deadline
        prove.validate(run, proof, states, search.workshop)
        promising = sum(bool(state.fastest(1)) for state in states)
        deadline = _deadline(run, promising, proof)
        if ended_early or deadline - time.monotonic() < again_s:
            return
        search.limits = replace(search.limits, deadline=deadline)


def _prepare_search(
    run: TuningRun,
    chosen: Sequence[PlannedTask],
    workshop: Workshop,
    stack: ExitStack,
    deadline: float,
) -> Search:
    tune = run.job.options.tune
    batch = _BATCH_PER_CORE * run.threads
    assert run.profile is not None
    search = Search(
        chosen,
        workshop,
        run.database,
        Limits(
            deadline=deadline,
            trials=tune.trials,
            per_task=tune.max_trials_per_task,
            until=tune.until,
            early_stopping=tune.early_stopping,
        ),
        elsewhere=records.databases(run.job.options.db, run.target),
        proposer=setup.proposer(run, stack, batch),
        batch=batch,
        rest_s=run.profile.end_to_end_s - sum(p.total_s for p in chosen),
        on_trial=lambda search, state: _show(run, search, state),
    )
    if earlier := sum(state.earlier for state in search.states.values()):
        run.job.progress.note(
            msgn(
                "{count} earlier trial is not repeated",
                "{count} earlier trials are not repeated",
                count=earlier,
            )
        )
    return search


def _tell_unseeded(run: TuningRun, search: Search) -> None:
    """Warn in the session if MetaSchedule could not start from the rules' results."""
    told = search.proposer.remarks if search.proposer else {}
    notes = [
        msg("{task}: MetaSchedule started without some seeds: {why}", task=key, why=why)
        for key, why in told.items()
    ]
    for note in notes:
        run.job.progress.note(note)
    run.job.session = replace(run.job.session, warnings=(*run.job.session.warnings, *notes))


def _show(run: TuningRun, search: Search, state: State) -> None:
    left_s = max(0.0, search.limits.deadline - time.monotonic())
    total_s = search.elapsed_s + left_s
    line = progress_line(search, state, left_s)
    run.job.progress.step(search.elapsed_s, total_s, line)


def _tasks(count: int) -> Text:
    return msgn("{count} task", "{count} tasks", count=count)
