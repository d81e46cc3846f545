"""Tuning, from a model to a proven faster one: plan, search, validate, prove.

load -> compile and profile untuned -> list what can be tuned -> plan -> search -> validate the best
-> compile with them -> verify and measure beside the untuned model -> only then record them as used
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.core.progress import Progress, Silent
from tvmscope.core.session import Session, save
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.tuning.database import Database
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.search import Limits, Search
from tvmscope.tuning.state import State
from tvmscope.tuning.workshop import Workshop
from tvmscope.workflow import places, records, reports, stages, tuning_proof, tuning_setup
from tvmscope.workflow.analyze import begin
from tvmscope.workflow.options import Options
from tvmscope.workflow.tuning_setup import Tuned
from tvmscope.workflow.tuning_view import progress_line, tuned_tasks

_BATCH_PER_CORE = 4


def tune(
    model: Any, options: Options, progress: Progress | None = None, *, dry_run: bool = False
) -> Session:
    """Search within the budget and prove what was found; with `dry_run` only plan."""
    progress = progress or Silent()
    began, started = time.monotonic(), datetime.now(UTC)
    target, options = _one(options)
    file = records.file_to_write(options.db, target)
    if options.output is not None:
        places.claim(options.output, force=options.force)
    progress.stage("load", stages.name_of(model))
    with (
        stages.prepared(model, options) as ready,
        TemporaryDirectory(prefix="tvmscope-") as scratch,
    ):
        for note in ready.model.notes:
            progress.note(note)
        label = f"tune-{target.label}"
        folder = options.output or places.session_folder(ready.model.name, label, started)
        run = Tuned(
            ready=ready,
            options=options,
            target=target,
            folder=Path(scratch) / "session" if dry_run else folder,
            scratch=Path(scratch),
            database=Database(file),
            progress=progress,
            began=began,
            session=begin(ready, options, (target,), started),
        )
        with ExitStack() as stack:
            planned = tuning_setup.plan(run, stack)
            run.session = replace(run.session, tuning=tuned_tasks(planned), complete=dry_run)
            if dry_run:
                return run.session
            try:
                return _tune(run, planned, stack)
            finally:
                if file.exists():  # not where nothing was tried
                    progress.note(f"records: {file}")
                progress.note(f"session: {folder}")


def _one(options: Options) -> tuple[Target, Options]:
    """One target and precision; the rows that are compared are ours alone."""
    if len(options.targets) != 1 or len(options.precisions) != 1:
        raise UsageError("tune takes one target and one precision; run it once for each")
    (target,) = stages.resolve_targets(options)
    if target.kind != "llvm":  # candidates are checked by the plain loops, which no GPU can run
        raise UsageError(f"{target.label}: only CPU targets can be tuned")
    own = replace(
        options,
        backends=("tvmscope",),
        graph=False,
        load=replace(options.load, need_onnx=False),
    )
    (row,) = stages.plan_rows(own, (target,), "torch")
    if row.unavailable is not None:
        raise UsageError(f"{target.label} cannot be tuned here: {row.unavailable}")
    return target, own


def _tune(run: Tuned, planned: Sequence[PlannedTask], stack: ExitStack) -> Session:
    """Search, validate and prove; whatever ends it, the session says how far it came."""
    chosen = [p for p in planned if p.reason is None]
    save(run.session, run.folder)
    search: Search | None = None
    proof = tuning_proof.Proof()
    try:
        if chosen:
            workshop = stack.enter_context(tuning_setup.workshop(run))
            search = _prepare_search(run, chosen, workshop, stack)
            search.run()
            proof = tuning_proof.validate(run, list(search.states.values()), workshop)
            if not any(state.tried for state in search.states.values()):
                proof.reason = "no candidate was tried"
            workshop.close()
        proof = tuning_proof.prove(run, proof)
        run.session = replace(run.session, complete=True)
    finally:
        states = search.states if search else {}
        run.session = replace(run.session, tuning=tuned_tasks(planned, states, proof))
        save(run.session, run.folder)
    reports.write(run.session, run.folder, run.progress, redacted=run.options.redact)
    return run.session


def _prepare_search(
    run: Tuned, chosen: Sequence[PlannedTask], workshop: Workshop, stack: ExitStack
) -> Search:
    tune, reserve_s = run.options.tune, tuning_proof.reserve_s(run, len(chosen))
    deadline = run.began + tune.budget_s - reserve_s
    batch = _BATCH_PER_CORE * run.threads
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
        proposer=tuning_setup.proposer(run, stack, batch),
        batch=batch,
        rest_s=run.session.profiles[0].end_to_end_s - sum(p.total_s for p in chosen),
        on_trial=lambda search, state: _show(run, search, state, deadline),
    )
    if run.spent_s() >= tune.budget_s - reserve_s:
        run.progress.note(
            f"the budget leaves no time to search: preparing took {run.spent_s():.0f} s and the "
            f"proof is given {reserve_s:.0f} s; give a larger --budget"
        )
    if earlier := sum(state.earlier for state in search.states.values()):
        run.progress.note(f"{earlier} earlier trials are not repeated")
    run.progress.stage("search", f"{len(chosen)} tasks")
    return search


def _show(run: Tuned, search: Search, state: State, deadline: float) -> None:
    left_s = max(0.0, deadline - time.monotonic())
    total_s = search.elapsed_s + left_s
    line = progress_line(search, state, left_s)
    run.progress.step(search.elapsed_s, total_s, line)
