"""Times a model's or an artifact's kernels, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.benchmark.entry import Entry
from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.progress import Progress, Silent
from tvmscope.runtime.artifact import META
from tvmscope.stages.artifact import read_checked, session_of, with_inputs
from tvmscope.stages.build import build_rows
from tvmscope.stages.device import on_device
from tvmscope.stages.job import begin
from tvmscope.stages.load import loaded
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows, with_needed_export
from tvmscope.stages.profile import profile_entries, warned
from tvmscope.stages.targets import resolve_targets
from tvmscope.tuning.records.lookup import records_of


@on_device
def profile(model: Any, options: Options, progress: Progress | None = None) -> Session:
    """Profile a model's backends (ours, unless others are requested), or an artifact folder."""
    progress = progress or Silent()
    if isinstance(model, str | Path) and (Path(model) / META).is_file():
        return profile_artifact(Path(model), options, progress)
    options = replace(options, backends=options.backends or ("tvmscope",))
    where = resolve_targets(options)
    with (
        loaded(model, with_needed_export(options, where), progress) as ready,
        TemporaryDirectory(prefix="tvmscope-") as scratch,
    ):
        rows = plan_rows(options, where, ready.model.format, records_of(options.db))
        chosen = [row for row in rows if row.has_profiler]
        silent = tuple(
            msg("{row}: has no profiler", row=r.key.name) for r in rows if r not in chosen
        )
        session = replace(begin(ready.model, options, where), warnings=silent)
        built = build_rows(chosen, ready, options, Path(scratch), progress)
        session, entries = _loadable(session, built, progress)
        return _last(session, profile_entries(session, entries, options, progress))


def _loadable(
    session: Session, built: Sequence[Entry], progress: Progress
) -> tuple[Session, list[Entry]]:
    """Return the entries that can be loaded; the reasons of the others become warnings."""
    entries = []
    for entry in built:
        if problem := entry.failure or entry.unavailable:
            text = msg("{row}: {problem}", row=entry.task.label, problem=problem)
            session = warned(session, text, progress)
        else:
            entries.append(entry)
    return session, entries


@on_device
def profile_artifact(
    path: Path, options: Options, progress: Progress, session: Session | None = None
) -> Session:
    """Profile an artifact, in a separate session or added to the one that measured it."""
    artifact = read_checked(path, options)
    if options.backends:
        raise UsageError(msg("an artifact runs on TVM alone; --backends needs the model itself"))
    session = session or session_of(artifact, options)
    with with_inputs([artifact], options) as (_, entries):
        return _last(session, profile_entries(session, entries, options, progress))


def _last(session: Session, steps: Iterator[Session]) -> Session:
    for step in steps:
        session = step
    return session
