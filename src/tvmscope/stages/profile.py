"""The stage that times each kernel, in separate runs, and measures the roofs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

from tvmscope.benchmark.entry import Entry
from tvmscope.core import stats
from tvmscope.core.environment import Environment
from tvmscope.core.measurement import Measurement, Result
from tvmscope.core.profile import KernelIR, Profile
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.machine import cuda_device
from tvmscope.measure.machine_lock import alone
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_within
from tvmscope.messages import Text, msg
from tvmscope.profiling import roofs
from tvmscope.profiling.kernels import profile_row
from tvmscope.progress import Progress
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime.check import cpu_problem
from tvmscope.stages import places
from tvmscope.stages.job import Job
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow, built_entry

_ROOFS = here(roofs.measure)
ROOFS_TIMEOUT_S = 60.0


def profile_rows(job: Job, rows: Sequence[PlannedRow]) -> Iterator[Session]:
    """Yield the session with one more profile after each measured row that has a profiler."""
    measured = {result.key for result in job.session.results if result.measurement is not None}
    entries = [
        built_entry(row, job.ready, job.options, job.artifacts)
        for row in rows
        if row.key in measured and row.has_profiler
    ]
    yield from profile_entries(job.session, entries, job.options, job.progress, job.logs)


def profile_entries(
    session: Session,
    entries: Sequence[Entry],
    options: Options,
    progress: Progress,
    log_dir: Path | None = None,
) -> Iterator[Session]:
    """Yield the session after each entry, and with the roofs; a failure becomes a warning."""
    progress.stage(msg("profile"), msg("kernel by kernel"))
    for number, entry in enumerate(entries):
        progress.step(number, len(entries), entry.task.label)
        try:
            with alone(progress.note):
                session = _with_profile(session, entry, options, log_dir)
        except TvmscopeError as e:
            text = msg("{row}: not profiled: {reason}", row=entry.task.label, reason=one_line(e))
            session = warned(session, text, progress)
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
    profile = as_measured(profile, session.result_of(profile))
    return replace(
        session,
        profiles=(*session.profiles, profile),
        kernel_ir=(*session.kernel_ir, *_kernel_ir(profile, entry)),
    )


def as_measured(profile: Profile, result: Result | None) -> Profile:
    """Return a GPU's profile with the plain runs of the measurement, if there is one.

    Kernel times are those of the device's own clock, but the host is slower after every traced run,
    so plain runs in the profiler's process are not those that the table shows.
    """
    if profile.device is None or result is None or not _has_values(result.measurement):
        return profile
    device = profile.device
    if _has_values(result.device_measurement):  # not every runtime lets one record events
        device = replace(device, plain_s=stats.median_s(result.device_measurement))
    return replace(profile, end_to_end_s=stats.median_s(result.measurement), device=device)


def _has_values(measurement: Measurement | None) -> TypeGuard[Measurement]:
    return measurement is not None and bool(measurement.values_s)


def _kernel_ir(profile: Profile, entry: Entry) -> list[KernelIR]:
    """Return the artifact's descriptions of the kernels that ran."""
    if entry.request.artifact is None:
        return []
    ran = {kernel.name for kernel in profile.kernels}
    return [
        replace(ir, key=profile.key)
        for ir in artifacts.read_kernels(Path(entry.request.artifact))
        if ir.name in ran
    ]


def _with_roofs(session: Session, progress: Progress) -> Session:
    """Add this machine's roofs, cached or measured now, which takes two seconds."""
    for target in session.targets:
        if not _is_here(target):
            continue
        progress.stage(msg("roofs"), target.label)
        try:
            machine = _machine(target, session.environment)
            with alone(progress.note):
                found = run_within(
                    ROOFS_TIMEOUT_S,
                    _ROOFS,
                    machine,
                    places.cache_folder(),
                    session.environment.threads,
                )
        except TvmscopeError as e:
            text = msg(
                "{target}: its roofs are unknown: {reason}", target=target.label, reason=one_line(e)
            )
            session = warned(session, text, progress)
            continue
        if not any(roof.device == target.device for roof in session.roofs):
            session = replace(session, roofs=(*session.roofs, *found))
    return session


def _is_here(target: Target) -> bool:
    if target.kind == "cuda":
        return cuda_device.find() is not None
    return cpu_problem(target) is None


def _machine(target: Target, here: Environment) -> Target:
    """Return the target with all features of this machine: a roof is not limited by the code."""
    cores = max(target.cores, here.cores)
    return replace(target, cores=cores, features=(*target.features, *here.cpu_features))


def warned(session: Session, text: Text, progress: Progress) -> Session:
    """Return the session with one more warning, which is shown at once."""
    progress.note(text)
    return replace(session, warnings=(*session.warnings, text))
