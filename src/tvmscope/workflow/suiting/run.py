"""Runs a suite: finds the problems, skips finished ones, measures the others, writes the pages.

find -> shard -> for each that is missing or changed: measure under limits, keep its row -> pages
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tvmscope.core.suite import SuiteRow
from tvmscope.errors import RunError, one_line
from tvmscope.measure.fork_server import ForkServer
from tvmscope.messages import msg, word
from tvmscope.progress import Progress, Silent
from tvmscope.stages import places
from tvmscope.stages.device import using
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import candidates
from tvmscope.stages.preload import fork_server
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.workflow.suiting.cluster import Cluster, run_on_cluster
from tvmscope.workflow.suiting.options import Shard, SuiteOptions
from tvmscope.workflow.suiting.plans import Planned, is_done, planned
from tvmscope.workflow.suiting.problem import Examiner, examine, run_problem
from tvmscope.workflow.suiting.problems import Problem
from tvmscope.workflow.suiting.store import Store, opened


def run_suite(
    problems: Sequence[Problem],
    options: Options,
    how: SuiteOptions,
    folder: Path,
    progress: Progress | None = None,
    examiner: Examiner | None = None,
    cluster: Cluster | None = None,
) -> list[SuiteRow]:
    """Measure what is missing or changed; return the rows of all problems of this shard."""
    progress = progress or Silent()
    examiner = examiner or partial(examine, how.profile)
    here = None if cluster else options.device
    if cluster is None:
        with using(here):
            candidates(options, resolve_targets(options))  # raises if no problem could run on them
    mine = problems[how.shard.number - 1 :: how.shard.count]
    with using(here), opened(folder) as store:
        plans = [planned(problem, options, how, any_machine=bool(cluster)) for problem in mine]
        todo = [plan for plan in plans if not is_done(plan, store, how)]
        if len(todo) < len(plans):
            progress.note(
                msg("{count} of {all} are done", count=len(plans) - len(todo), all=len(plans))
            )
        if cluster is None:
            rows = _one_by_one(todo, how, store, examiner, progress)
        else:
            rows = run_on_cluster(todo, how, store, cluster, progress)
        for number, row in enumerate(rows):
            store.append(row)
            tell(row, progress)
            progress.step(number + 1, len(todo), row.problem)
        return [store.rows[plan.problem.name] for plan in plans]


def _one_by_one(
    todo: Sequence[Planned],
    how: SuiteOptions,
    store: Store,
    examiner: Examiner,
    progress: Progress,
) -> Iterator[SuiteRow]:
    """Yield the rows of all problems, measured here."""
    with workers(todo, how, progress) as server:
        for number, plan in enumerate(todo):
            place = msg(
                "{number} of {count}: {name}",
                number=number + 1,
                count=len(todo),
                name=plan.problem.name,
            )
            progress.stage(msg("suite"), place)
            yield run_problem(
                plan.problem, plan.key, plan.options, how, store, server, progress, examiner
            )


def default_folder(given: Sequence[str], shard: Shard) -> Path:
    """Return the same folder for the same request, so that a rerun continues it."""
    name = re.sub(r"[^\w.+-]+", "_", "+".join(Path(text).name for text in given))[:80]
    part = f"-{shard.number}-of-{shard.count}" if shard.count > 1 else ""
    return places.RESULTS / f"suite-{name}{part}"


@contextmanager
def workers(
    todo: Sequence[Planned], how: SuiteOptions, progress: Progress
) -> Iterator[ForkServer | None]:
    """Yield the fork server, if there is work and it is available."""
    if not todo or not how.fork:
        yield None
        return
    with fork_server(threads_of(todo[0].options)) as server:
        try:
            server.start()
        except RunError as e:
            progress.note(msg("workers are spawned: {reason}", reason=one_line(e)))
            yield None
            return
        yield server


def tell(row: SuiteRow, progress: Progress) -> None:
    """Report a problem without a correct result in one line."""
    if row.outcome != "correct":
        progress.note(
            msg(
                "{name}: {outcome}: {reason}",
                name=row.problem,
                outcome=word(row.outcome),
                reason=row.reason or "",
            )
        )
