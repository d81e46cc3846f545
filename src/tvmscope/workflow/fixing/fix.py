"""The loop of fixes: a fix is predicted, built, verified and measured, then kept or undone.

Each fix is measured in turns with the previous row, and builds on those that were kept. After every
fix that stays, the row is profiled and diagnosed again: the next prediction is about the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvmscope.benchmark.entry import Entry
from tvmscope.compiler import targets
from tvmscope.core.diagnosis.findings import Attempt, Finding
from tvmscope.core.measurement import Result
from tvmscope.core.precision import Precision
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session
from tvmscope.diagnose import view
from tvmscope.errors import BuildError, TvmscopeError, UsageError, one_line
from tvmscope.messages import msg
from tvmscope.stages import places
from tvmscope.stages.build import build_rows
from tvmscope.stages.diagnose import diagnose_session
from tvmscope.stages.job import Job
from tvmscope.stages.measure_rows import MeasuredRows, framework_outputs, measure_rows
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows
from tvmscope.stages.planning.rows import PlannedRow, built_entry
from tvmscope.stages.profile import profile_entries
from tvmscope.stages.targets import threads_of
from tvmscope.workflow.fixing import attempts, calibration

_KNOWN = ("target", "precision", "threads", "graph", "pipeline", "exec_mode", "disabled_passes",
          "winograd")  # fmt: skip
_BLIND = ("exec_mode", "graph")
"""Their results cannot be profiled, so that nothing could be found after them: they come last."""


@dataclass(frozen=True)
class Version:
    """Our row at some point of the loop, and the options with which it is compiled."""

    row: PlannedRow
    options: Options

    @property
    def key(self) -> RowKey:
        return self.row.key

    @property
    def group(self) -> tuple[tuple[str, Precision], int]:
        """The values in which compared rows must agree."""
        return self.key.group, threads_of(self.options)


def applied(options: Options, fix: Mapping[str, Any]) -> Options:
    """Return the options after a fix; a fix is data that may come from a file."""
    if unknown := [key for key in fix if key not in _KNOWN]:
        raise UsageError(
            msg("a fix cannot set {unknown}; it knows {known}", unknown=unknown, known=_KNOWN)
        )
    whole = {key: fix[key] for key in ("threads", "graph") if key in fix}
    if "precision" in fix:
        whole["precisions"] = (Precision.parse(fix["precision"]),)
    if "target" in fix:
        whole["targets"] = (fix["target"],)
    build = {key: fix[key] for key in ("pipeline", "exec_mode") if key in fix}
    if "disabled_passes" in fix:
        build["disabled_passes"] = tuple(fix["disabled_passes"])
    if "winograd" in fix:
        build["overrides"] = options.compile.overrides | {"winograd": fix["winograd"]}
    return replace(options, **whole, compile=replace(options.compile, **build))


class FixLoop:
    """Tries fixes on one row of a session."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def run(self, session: Session, first: Version) -> Iterator[Session]:
        """Yield the session after each step; it has a prediction before the fix is built."""
        now = first
        while (finding := _next(session, now)) is not None:
            attempt = attempts.promise(finding, now.key)
            number = len(session.fixes) + 1
            self.job.progress.note(attempts.tell(attempt, number))
            yield (session := attempts.with_attempt(session, attempt))
            attempt, kept = self._try(attempt, now, number)
            calibration.record(session, attempt)
            self.job.progress.note(attempts.tell(attempt, number))
            session = attempts.with_attempt(session, attempt, at=number)
            if kept is not None:
                session = self._settle(session, now, kept, number)
                now = kept[0]
            shutil.rmtree(self._scratch(number), ignore_errors=True)
            yield session
        if now is not first:
            yield from self._measured_again(session, first, now)

    def _try(
        self, attempt: Attempt, now: Version, number: int
    ) -> tuple[Attempt, tuple[Version, Result] | None]:
        """Return the attempt with its outcome; the new version and its row if it stays."""
        try:
            version = _changed(now, attempt.fix, self.job.ready.model.format)
            entry = self._built(version, number)
        except TvmscopeError as e:
            return attempts.undone(attempt, msg("build failed: {why}", why=one_line(e))), None
        old, new = self._measure(
            [self._entry(now), entry], version.options, f"fix-{number}"
        ).results
        judged = attempts.judge(attempt, old, new)
        return judged, (version, new) if judged.outcome == "kept" else None

    def _built(self, version: Version, number: int) -> Entry:
        """Compile in a separate folder: the previous row must stay loadable."""
        (entry,) = build_rows(
            [version.row], self.job.ready, version.options, self._scratch(number), self.job.progress
        )
        if problem := entry.failure or entry.unavailable:
            raise BuildError(problem)
        return entry

    def _entry(self, version: Version) -> Entry:
        """Return the entry of a row that is built."""
        return built_entry(version.row, self.job.ready, version.options, self.job.artifacts)

    def _measure(self, entries: Sequence[Entry], options: Options, logs: str) -> MeasuredRows:
        expected = framework_outputs(self.job.ready)
        return measure_rows(
            entries, options, expected, self.job.progress, log_dir=self.job.logs / logs
        )

    def _profiled(self, session: Session, now: Version) -> Session:
        entries = [self._entry(now)]
        for step in profile_entries(
            session, entries, now.options, self.job.progress, self.job.logs
        ):
            session = step
        return session

    def _measured_again(self, session: Session, first: Version, now: Version) -> Iterator[Session]:
        """Measure all rows of this target in one run, peers with the fixed row's target and cores.

        If a fix has changed those, the rows before it stay as they were measured together.
        """
        asked = replace(now.options, precisions=(now.row.variant.precision,), graph=None)
        planned = plan_rows(asked, [now.row.target], self.job.ready.model.format)
        measured = {r.task.variant.backend for r in session.results if r.status == "ok"}
        peers = [
            Version(row, asked)
            for row in planned
            if not row.key.is_compiled and row.backend.name in measured
        ]
        versions = [*([first] if first.group == now.group else []), *peers, now]
        entries = [self._entry(version) for version in versions]
        results = self._measure(entries, now.options, "fixed").results
        yield (session := attempts.with_results(attempts.without_stale(session, results), results))
        known = {p.key for p in session.profiles}
        new = [
            e
            for e, v in zip(entries, versions, strict=True)
            if e.key not in known and v.row.has_profiler
        ]
        yield from profile_entries(session, new, now.options, self.job.progress, self.job.logs)

    def _settle(
        self, session: Session, now: Version, kept: tuple[Version, Result], number: int
    ) -> Session:
        """Put the new row with its profile into the session; remove an earlier fixed row."""
        version, result = kept
        gone = now.key if now.row.variant.fixed else None
        if gone is not None:
            shutil.rmtree(self.job.artifacts / now.key.folder_name)
        name = version.key.folder_name
        shutil.move(self._scratch(number) / name, self.job.artifacts / name)
        if any(key in session.fixes[-1].fix for key in _BLIND):  # the kernels are unchanged
            return attempts.superseded(session, gone, version.row.target, result)
        session = attempts.superseded(
            attempts.without_profile(session, gone), gone, version.row.target, result
        )
        return self._profiled(session, version)

    def _scratch(self, number: int) -> Path:
        return self.job.artifacts / f"fix-{number}"


def fix_rows(job: Job, rows: Sequence[PlannedRow]) -> Iterator[Session]:
    """Try the fixes of every diagnosed row of ours; yield the session after each step."""
    loop, session = FixLoop(job), job.session
    for subject in view.subjects(session):
        row = next((r for r in rows if r.key == subject.key), None)
        if row is None or subject.row is None or subject.row.status != "ok":
            job.progress.note(
                msg(
                    "{row}: no fixes are tried on a row whose result is wrong", row=subject.key.name
                )
            )
            continue
        pipeline = row.variant.pipeline or job.options.compile.pipeline
        own = replace(job.options, compile=replace(job.options.compile, pipeline=pipeline))
        for step in loop.run(session, Version(row, own)):
            session = step
            yield session


def _next(session: Session, now: Version) -> Finding | None:
    """Return the untried finding whose fix promises most."""
    tried = {(a.rule, a.title) for a in session.fixes if a.key and a.key.device == now.key.device}
    about = view.about(session, now.key, now.row.target)
    found = [f for f in diagnose_session(about).findings if f.fix and f.saving_s != 0]
    new = [f for f in found if (f.rule, f.title) not in tried]
    return min(new, key=lambda f: any(key in f.fix for key in _BLIND), default=None)


def _changed(now: Version, fix: Mapping[str, Any], model_format: str) -> Version:
    """Return the row that a fix makes from the present one."""
    options = applied(now.options, fix)
    cores = threads_of(options)
    if "target" in fix:
        target = targets.resolve(fix["target"], cores=cores, cache=places.cache_folder())
    else:
        target = replace(now.row.target, cores=cores)
    asked = replace(
        options,
        backends=("tvmscope",),
        precisions=options.precisions if "precision" in fix else (now.key.precision,),
        graph=fix.get("graph", now.row.variant.graph),
    )
    row, *_rest = plan_rows(asked, [target], model_format)
    return Version(row.changed(fixed=True), options)
