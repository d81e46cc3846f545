"""Times kernel by kernel, in runs of their own: inside `analyze`, and alone for `profile`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.benchmark.plan import Entry
from tvmscope.core.environment import Environment
from tvmscope.core.model import Prepared
from tvmscope.core.profile import KernelIR, Profile
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.machine import cuda_device
from tvmscope.measure.worker import run_isolated
from tvmscope.messages import Text, msg
from tvmscope.profiling.kernels import profile_row
from tvmscope.progress import Progress, Silent
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime.artifact import META, cpu_problem
from tvmscope.storage.files import write_npz
from tvmscope.workflow import environment, places, stages
from tvmscope.workflow.options import Options
from tvmscope.workflow.run import entry_for, inputs_for, session_of

ROOFS_TIMEOUT_S = 60.0


def profile_rows(
    session: Session,
    rows: Sequence[stages.PlannedRow],
    ready: Prepared,
    options: Options,
    folder: Path,
    progress: Progress,
) -> Iterator[Session]:
    """The session with one more profile after each measured row that has a profiler."""
    measured = {result.key for result in session.results if result.measurement is not None}
    entries = [
        stages.loadable_entry(row, ready, options, folder / "artifacts")
        for row in rows
        if row.key in measured and has_profiler(row)
    ]
    yield from profile_entries(session, entries, options, progress, log_dir=folder / "logs")


def has_profiler(row: stages.PlannedRow) -> bool:
    """A CUDA graph runs its kernels as one."""
    return row.backend.profiles and not row.variant.graph


def profile_entries(
    session: Session,
    entries: Sequence[Entry],
    options: Options,
    progress: Progress,
    log_dir: Path | None = None,
) -> Iterator[Session]:
    """The session after each entry, and with the roofs; what fails becomes a warning."""
    progress.stage("profile", "kernel by kernel")
    for number, entry in enumerate(entries):
        progress.step(number, len(entries), entry.task.label)
        try:
            session = _with_profile(session, entry, options, log_dir)
        except TvmscopeError as e:
            text = msg("{row}: not profiled: {reason}", row=entry.task.label, reason=one_line(e))
            session = _warn(session, text, progress)
        yield session
    if session.profiles:
        yield _with_roofs(session, progress)


def _with_profile(
    session: Session, entry: Entry, options: Options, log_dir: Path | None
) -> Session:
    log = re.sub(r"[^A-Za-z0-9._-]+", "-", f"profile {entry.task.label}") + ".log"
    profile = profile_row(
        entry.key,
        entry.load,
        entry.request,
        entry.env,
        timeout_s=options.measure.timeout_s,
        log_path=log_dir and log_dir / log,
    )
    return replace(
        session,
        profiles=(*session.profiles, profile),
        kernel_ir=(*session.kernel_ir, *_kernel_ir(profile, entry)),
    )


def _kernel_ir(profile: Profile, entry: Entry) -> list[KernelIR]:
    """What the artifact says of the kernels that ran."""
    if entry.request.artifact is None:
        return []
    ran = {kernel.name for kernel in profile.kernels}
    return [
        replace(ir, key=profile.key)
        for ir in artifacts.read_kernels(Path(entry.request.artifact))
        if ir.name in ran
    ]


def _with_roofs(session: Session, progress: Progress) -> Session:
    """This machine's roofs, from the cache or measured now, which takes two seconds."""
    for target in session.targets:
        if not _is_here(target):
            continue
        progress.stage("roofs", target.label)
        try:
            roofs = run_isolated(
                "tvmscope.profiling.roofs:measure",
                _machine(target, session.environment),
                places.cache_folder(),
                timeout_s=ROOFS_TIMEOUT_S,
            )
        except TvmscopeError as e:
            text = msg(
                "{target}: its roofs are unknown: {reason}", target=target.label, reason=one_line(e)
            )
            session = _warn(session, text, progress)
            continue
        if not any(roof.device == target.device for roof in session.roofs):
            session = replace(session, roofs=(*session.roofs, *roofs))
    return session


def _is_here(target: Target) -> bool:
    if target.kind == "cuda":
        return cuda_device.find() is not None
    return cpu_problem(target) is None


def _machine(target: Target, here: Environment) -> Target:
    """The target with everything that this machine has: a roof is the machine's, not the code's."""
    cores = max(target.cores, here.cores)
    return replace(target, cores=cores, features=(*target.features, *here.cpu_features))


def _warn(session: Session, text: Text, progress: Progress) -> Session:
    progress.note(text)
    return replace(session, warnings=(*session.warnings, text))


# ---- alone, without measuring ----------------------------------------------------------------


def profile(model: Any, options: Options, progress: Progress | None = None) -> Session:
    """Profile a model's backends (ours, unless others are asked for), or an artifact folder."""
    progress = progress or Silent()
    if isinstance(model, str | Path) and (Path(model) / META).is_file():
        return profile_artifact(Path(model), options, progress)
    options = replace(options, backends=options.backends or ("tvmscope",))
    stages.known_backends(options)  # before a load that may take minutes
    where = stages.resolve_targets(options)
    progress.stage("load", stages.name_of(model))
    with (
        stages.prepared(model, stages.without_needless_export(options, where)) as ready,
        TemporaryDirectory(prefix="tvmscope-") as scratch,
        ExitStack() as compilers,
    ):
        rows = stages.plan_rows(options, where, ready.model.format)
        chosen = [row for row in rows if has_profiler(row)]
        session = Session(
            command=options.command,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            environment=environment.collect(stages.threads_of(options)),
            model=ready.model,
            targets=where,
            warnings=tuple(
                msg("{row}: has no profiler", row=r.key.name) for r in rows if r not in chosen
            ),
        )
        planned = stages.plan_entries(chosen, ready, options, Path(scratch), compilers)
        session, entries = _built(session, planned, progress)
        return _last(session, profile_entries(session, entries, options, progress))


def _built(
    session: Session, planned: Sequence[Entry], progress: Progress
) -> tuple[Session, list[Entry]]:
    """The entries that can be loaded; why the others cannot is a warning."""
    entries = []
    for entry in planned:
        if entry.build is not None:
            progress.stage("compile", entry.task.label)
            entry = entry.build()
        if problem := entry.failure or entry.unavailable:
            text = msg("{row}: {problem}", row=entry.task.label, problem=problem)
            session = _warn(session, text, progress)
        else:
            entries.append(entry)
    return session, entries


def profile_artifact(
    path: Path, options: Options, progress: Progress, session: Session | None = None
) -> Session:
    """An artifact's kernels, in a session of their own or added to the one that measured it."""
    artifact = artifacts.read(path)
    artifacts.check(artifact)
    if options.backends:
        raise UsageError(msg("an artifact runs on TVM alone; --backends needs the model itself"))
    session = session or session_of(artifact, options)
    with TemporaryDirectory(prefix="tvmscope-") as folder:
        write_npz(Path(folder) / "inputs.npz", inputs_for(artifact, options))
        entry = entry_for(artifact, folder, options)
        return _last(session, profile_entries(session, [entry], options, progress))


def _last(session: Session, steps: Iterator[Session]) -> Session:
    for step in steps:
        session = step
    return session
