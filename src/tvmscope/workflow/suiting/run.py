"""Runs a suite: find the problems, skip what is done, measure the rest one by one, write the pages.

find -> shard -> for each that is missing or changed: measure under limits, keep its row -> pages
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tvmscope.core.suite import SuiteRow
from tvmscope.errors import RunError, one_line
from tvmscope.measure.fork_server import ForkServer
from tvmscope.messages import msg, word
from tvmscope.progress import Progress, Silent
from tvmscope.stages import places
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import candidates
from tvmscope.stages.preload import fork_server
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.workflow.suiting.keys import key_of
from tvmscope.workflow.suiting.options import Shard, SuiteOptions
from tvmscope.workflow.suiting.problem import Examiner, examine, run_problem
from tvmscope.workflow.suiting.problems import Problem
from tvmscope.workflow.suiting.store import Store, opened

DEFAULT_BACKENDS = {True: ("tvmscope", "onnxruntime"), False: ("tvmscope", "torch")}
"""For an ONNX file, and for everything else: ours, and the framework that the model comes from."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A problem that is to be measured, with its own options and the key of its row."""

    problem: Problem
    options: Options
    key: str


def run_suite(
    problems: Sequence[Problem],
    options: Options,
    how: SuiteOptions,
    folder: Path,
    progress: Progress | None = None,
    examiner: Examiner | None = None,
    on_row: Callable[[SuiteRow], object] = lambda row: None,
) -> list[SuiteRow]:
    """Measure what is missing or changed; returns the rows of all problems of this shard.

    `on_row` sees each of them in order, those that were done before included.
    """
    progress = progress or Silent()
    examiner = examiner or partial(examine, how.profile)
    candidates(options, resolve_targets(options))  # refuses what no problem could run on
    mine = problems[how.shard.number - 1 :: how.shard.count]
    with opened(folder) as store:
        plans = [planned(problem, options, how) for problem in mine]
        todo = [plan for plan in plans if not is_done(plan, store, how)]
        if len(todo) < len(plans):
            progress.note(
                msg("{count} of {all} are done", count=len(plans) - len(todo), all=len(plans))
            )
        with workers(todo, how, progress) as server:
            for number, plan in enumerate(plans):
                name = plan.problem.name
                if plan in todo:
                    place = msg(
                        "{number} of {count}: {name}",
                        number=number + 1,
                        count=len(plans),
                        name=name,
                    )
                    progress.stage("suite", place)
                    row = run_problem(
                        plan.problem, plan.key, plan.options, how, store, server, progress, examiner
                    )
                    store.append(row)
                    tell(row, progress)
                on_row(store.rows[name])
                progress.step(number + 1, len(plans), name)
        return [store.rows[plan.problem.name] for plan in plans]


def default_folder(given: Sequence[str], shard: Shard) -> Path:
    """The same for the same request, so that a rerun goes on where it was."""
    name = re.sub(r"[^\w.+-]+", "_", "+".join(Path(text).name for text in given))[:80]
    part = f"-{shard.number}-of-{shard.count}" if shard.count > 1 else ""
    return places.RESULTS / f"suite-{name}{part}"


def planned(problem: Problem, options: Options, how: SuiteOptions) -> Planned:
    """A problem with the backends that it is measured on by default."""
    if not options.backends and not how.all_backends:
        is_onnx = problem.source.partition(":")[0].endswith(".onnx")
        options = replace(options, backends=DEFAULT_BACKENDS[is_onnx])
    limits: dict[str, float | int | None] = {
        "timeout_s": how.timeout_s,
        "memory_bytes": how.memory_bytes,
    }
    return Planned(problem=problem, options=options, key=key_of(problem, options, limits))


def is_done(plan: Planned, store: Store, how: SuiteOptions) -> bool:
    """Whether a row of the same key is there (and right, where others are to be tried again)."""
    row = store.rows.get(plan.problem.name)
    return row is not None and row.key == plan.key and (row.is_right or not how.retry)


@contextmanager
def workers(
    todo: Sequence[Planned], how: SuiteOptions, progress: Progress
) -> Iterator[ForkServer | None]:
    """The fork server, where there is something to do and it can be had."""
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
    """A line about a problem that did not end right."""
    if row.outcome != "correct":
        progress.note(
            msg(
                "{name}: {outcome}: {reason}",
                name=row.problem,
                outcome=word(row.outcome),
                reason=row.reason or "",
            )
        )
