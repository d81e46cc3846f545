"""The loop: a finding's fix is predicted, built, verified and measured, then kept or undone.

Each fix is measured in turns with the row as it was, and builds on those that were kept. After
every fix that stays, the row is profiled and diagnosed anew: the next prediction is about what is
left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tvmscope.benchmark.plan import Entry
from tvmscope.benchmark.run import run
from tvmscope.compiler import targets
from tvmscope.core.fixes import Attempt
from tvmscope.core.measurement import Result
from tvmscope.core.model import Prepared
from tvmscope.core.profile import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import view
from tvmscope.errors import BuildError, TvmscopeError, UsageError, one_line
from tvmscope.messages import _
from tvmscope.progress import Progress
from tvmscope.workflow import attempts, calibration, places, profile, stages
from tvmscope.workflow.facts import diagnosed
from tvmscope.workflow.options import Options

_KNOWN = ("target", "precision", "threads", "graph", "pipeline", "exec_mode", "disabled_passes",
          "winograd")  # fmt: skip
_BLIND = ("exec_mode", "graph")
"""What these make cannot be profiled, so that nothing could be found after them: they come last."""


@dataclass(frozen=True)
class Version:
    """Our row at some point of the loop, and the options that it is compiled with."""

    row: stages.Row
    options: Options

    @property
    def place(self) -> tuple[str, str]:
        """Label and target, by which a session knows the row."""
        return self.row.variant.label, self.row.target.label

    @property
    def group(self) -> tuple[str, str, int]:
        """Rows that agree in these are compared."""
        threads = stages.threads_of(self.options)
        return self.row.target.label, self.row.variant.precision, threads


def applied(options: Options, fix: Mapping[str, Any]) -> Options:
    """The options after a fix; a fix is data that may come from a file."""
    if unknown := [key for key in fix if key not in _KNOWN]:
        raise UsageError(f"a fix cannot set {', '.join(unknown)}; it knows {', '.join(_KNOWN)}")
    whole = {key: fix[key] for key in ("threads", "graph") if key in fix}
    if "precision" in fix:
        whole["precisions"] = (fix["precision"],)
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

    def __init__(self, ready: Prepared, folder: Path, progress: Progress) -> None:
        self.ready = ready
        self.folder = folder
        self.progress = progress

    def run(self, session: Session, first: Version) -> Iterator[Session]:
        """The session after each step; a prediction is in it before its fix is built."""
        now = first
        while (finding := _next(session, now)) is not None:
            attempt = attempts.promise(finding, *now.place)
            number = len(session.fixes) + 1
            self.progress.note(attempts.tell(attempt, number))
            yield (session := attempts.with_attempt(session, attempt))
            attempt, kept = self._try(attempt, now, number)
            calibration.record(session, attempt)
            self.progress.note(attempts.tell(attempt, number))
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
        """The attempt with its outcome; the new version and its row where it stays."""
        try:
            version = _changed(now, attempt.fix, self.ready.model.format)
            entry = self._built(version, number)
        except TvmscopeError as e:
            return attempts.undone(attempt, _("build failed: {why}").format(why=one_line(e))), None
        before = stages.loadable_entry(now.row, self.ready, now.options, self._artifacts)
        old, new = self._race([before, entry], version.options, f"fix-{number}")
        judged = attempts.judge(attempt, old, new)
        return judged, (version, new) if judged.outcome == "kept" else None

    def _built(self, version: Version, number: int) -> Entry:
        """Compile in a folder of its own: the row as it was must stay loadable."""
        with ExitStack() as compilers:
            (entry,) = stages.plan_entries(
                [version.row], self.ready, version.options, self._scratch(number), compilers
            )
            self.progress.stage("compile", entry.task.label)
            if entry.build is not None:
                entry = replace(entry.build(), build=None)
        if problem := entry.failure or entry.unavailable:
            raise BuildError(problem)
        return entry

    def _race(self, entries: Sequence[Entry], options: Options, logs: str) -> tuple[Result, ...]:
        return run(
            entries,
            options.measure,
            reference=self.ready.reference_path,
            reference_name=stages.REFERENCES[self.ready.model.format],
            tolerances=partial(stages.tolerance, options),
            atol=options.atol,
            progress=self.progress,
            on_update=lambda results: None,
            log_dir=self.folder / "logs" / logs,
        )

    def _profiled(self, session: Session, now: Version) -> Session:
        entry = stages.loadable_entry(now.row, self.ready, now.options, self._artifacts)
        logs = self.folder / "logs"
        for step in profile.profile_entries(session, [entry], now.options, self.progress, logs):
            session = step
        return session

    def _measured_again(self, session: Session, first: Version, now: Version) -> Iterator[Session]:
        """All rows of this target in one run, peers under the fixed row's target and threads.

        Where a fix has changed those, the rows before it stay as they were measured together.
        """
        asked = replace(now.options, precisions=(now.row.variant.precision,), graph=None)
        planned = stages.plan_rows(asked, [now.row.target], self.ready.model.format)
        measured = {r.task.variant.backend for r in session.results if r.status == "ok"}
        peers = [
            Version(row, asked)
            for row in planned
            if not view.is_ours(row.variant.backend) and row.variant.backend in measured
        ]
        versions = [*([first] if first.group == now.group else []), *peers, now]
        entries = [
            stages.loadable_entry(v.row, self.ready, v.options, self._artifacts) for v in versions
        ]
        results = self._race(entries, now.options, "fixed")
        yield (session := attempts.with_results(attempts.without_stale(session, results), results))
        known = {(p.backend, p.target) for p in session.profiles}
        new = [
            e
            for e, v in zip(entries, versions, strict=True)
            if (e.task.variant.label, e.task.target) not in known and profile.has_profiler(v.row)
        ]
        logs = self.folder / "logs"
        yield from profile.profile_entries(session, new, now.options, self.progress, logs)

    def _settle(
        self, session: Session, now: Version, kept: tuple[Version, Result], number: int
    ) -> Session:
        """The new row takes its place, with a profile; an earlier fixed one is no row any more."""
        version, result = kept
        gone = now.place if now.row.variant.fixed else None
        if gone is not None:
            shutil.rmtree(self._artifacts / now.row.folder_name)
        name = version.row.folder_name
        shutil.move(self._scratch(number) / name, self._artifacts / name)
        if any(key in session.fixes[-1].fix for key in _BLIND):  # the kernels are as they were
            return attempts.superseded(session, gone, version.row.target, result)
        session = attempts.superseded(
            attempts.without_profile(session, gone), gone, version.row.target, result
        )
        return self._profiled(session, version)

    @property
    def _artifacts(self) -> Path:
        return self.folder / "artifacts"

    def _scratch(self, number: int) -> Path:
        return self._artifacts / f"fix-{number}"


def fix_rows(
    session: Session,
    rows: Sequence[stages.Row],
    ready: Prepared,
    options: Options,
    folder: Path,
    progress: Progress,
) -> Iterator[Session]:
    """Try the fixes of every row of ours that is diagnosed; the session after each step."""
    loop = FixLoop(ready, folder, progress)
    for subject in view.subjects(session):
        place = (subject.profile.backend, subject.profile.target)
        row = next((r for r in rows if (r.variant.label, r.target.label) == place), None)
        if row is None or subject.row is None or subject.row.status != "ok":
            progress.note(f"{place[0]}: no fixes are tried on a row that is not right")
            continue
        pipeline = row.variant.pipeline or options.compile.pipeline
        own = replace(options, compile=replace(options.compile, pipeline=pipeline))
        for step in loop.run(session, Version(row, own)):
            session = step
            yield session


def _next(session: Session, now: Version) -> Finding | None:
    """The finding whose fix promises most, of those that were not tried."""
    tried = {(a.rule, a.title) for a in session.fixes if _device(a.target) == now.row.target.device}
    about = view.about(session, now.row.variant.label, now.row.target)
    found = [f for f in diagnosed(about).findings if f.fix and f.saving_s != 0]
    new = [f for f in found if (f.rule, f.title) not in tried]
    return min(new, key=lambda f: any(key in f.fix for key in _BLIND), default=None)


def _device(target: str) -> str:
    return target.partition(":")[0]


def _changed(now: Version, fix: Mapping[str, Any], model_format: str) -> Version:
    """The row that a fix makes of the present one."""
    options = applied(now.options, fix)
    cores = stages.threads_of(options)
    if "target" in fix:
        target = targets.resolve(fix["target"], cores=cores, cache=places.cache_folder())
    else:
        target = replace(now.row.target, cores=cores)
    asked = replace(
        options,
        backends=("tvmscope",),
        precisions=(fix.get("precision", now.row.variant.precision),),
        graph=fix.get("graph", now.row.variant.graph),
    )
    row, *_rest = stages.plan_rows(asked, [target], model_format)
    return Version(replace(row, variant=replace(row.variant, fixed=True)), options)
