"""What a tuning run begins with: the untuned model, where its time goes, and what can be tuned."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tvmscope.compiler import cpu_features
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.progress import Progress
from tvmscope.core.roofline import limits
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.core.tuning import TuningTask
from tvmscope.errors import TuneError
from tvmscope.tuning.builders import Builders
from tvmscope.tuning.database import Database
from tvmscope.tuning.metaschedule import Proposer
from tvmscope.tuning.plan import PlannedTask, make_plan
from tvmscope.tuning.remote import RemoteRunner
from tvmscope.tuning.runners import LocalRunner, Runner
from tvmscope.tuning.tracker import parse_address
from tvmscope.tuning.workshop import Setting, Workshop
from tvmscope.workflow import records, stages
from tvmscope.workflow.builder import Builder
from tvmscope.workflow.options import Options
from tvmscope.workflow.profile import profile_entries


@dataclass(kw_only=True)
class Tuned:
    """One tuning run: what it works on and the session as it grows."""

    ready: Prepared
    options: Options
    target: Target
    folder: Path
    scratch: Path
    database: Database
    progress: Progress
    began: float
    session: Session
    builder: Builder | None = None
    weights_bytes: int = 0
    """Of the untuned artifact, which is little else than weights."""
    build_s: float = 0.0
    """What compiling the untuned model took; the tuned one takes as long."""
    load_s: float = 0.0
    """What loading and profiling the untuned model took: loading and verifying takes no longer."""

    @property
    def threads(self) -> int:
        return stages.threads_of(self.options)

    @property
    def row(self) -> stages.Row:
        """The untuned model's row."""
        form = self.ready.model.format
        (row,) = stages.plan_rows(self.options, (self.target,), form)
        return row

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def config(self) -> CompileOptions:
        """Of the untuned model."""
        return replace(self.options.compile, precision=self.options.precisions[0], choices={})

    def spent_s(self) -> float:
        """Since the start of everything."""
        return time.monotonic() - self.began


def plan(run: Tuned, stack: ExitStack) -> list[PlannedTask]:
    """Compile the model untuned, profile it, and see what is worth tuning."""
    run.builder = stack.enter_context(Builder(run.ready, run.threads))
    run.progress.stage("compile", f"{run.ready.model.name} untuned")
    start = time.monotonic()
    built = run.builder.build(run.artifacts / run.row.folder_name, run.target, run.config)
    run.weights_bytes = built.size_bytes
    run.build_s = time.monotonic() - start
    run.progress.stage("list tasks", run.ready.model.name)
    tasks = run.builder.tasks(run.target, run.config, run.scratch / "functions")
    run.builder.pause()
    entry = stages.loadable_entry(run.row, run.ready, run.options, run.artifacts)
    start = time.monotonic()
    for session in profile_entries(
        run.session, [entry], run.options, run.progress, log_dir=run.folder / "logs"
    ):
        run.session = session
        run.load_s = run.load_s or time.monotonic() - start  # then come the roofs
    if not run.session.profiles:
        raise TuneError("the untuned model could not be profiled: " + run.session.warnings[-1])
    return _planned(run, tasks)


def _planned(run: Tuned, tasks: list[TuningTask]) -> list[PlannedTask]:
    profile = run.session.profiles[0]
    host = records.host(run.target, run.threads)

    def tried(task: TuningTask) -> int:
        known = run.database.tried(task.key, run.target, run.threads, tvm=host.tvm)
        return len(known & {candidate.id for candidate in task.candidates})

    return make_plan(
        tasks,
        profile,
        limits(run.session, profile),
        ops=run.options.tune.ops,
        second_layer=run.options.tune.metaschedule,
        tried=tried,
    )


def workshop(run: Tuned) -> Workshop:
    """Builders and a runner; they take turns where they would share cores."""
    tune, threads = run.options.tune, run.threads
    host = records.host(run.target, threads)
    runner: Runner = _remote(run) if tune.tracker else _local(run)
    setting = Setting(
        target=run.target,
        threads=threads,
        cpu=_remote_cpu(runner) if isinstance(runner, RemoteRunner) else host.cpu,
        tvm=host.tvm,
        clock_hz=_clock_hz() if runner.local else None,
        seed=tune.seed,
        repeat=tune.repeat,
        min_repeat_ms=tune.min_repeat_ms,
        timeout_s=tune.trial_timeout_s,
        weights_bytes=run.weights_bytes,
    )
    cores = cpu_features.usable_cores()
    spare = cores - threads if runner.local else cores
    builders = Builders(spare if spare > 0 else cores, timeout_s=tune.trial_timeout_s)
    return Workshop(builders, runner, run.scratch / "built", setting, take_turns=spare <= 0)


def _clock_hz() -> float | None:
    clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return clock.current * 1e6 if clock and clock.current else None


def _remote_cpu(runner: RemoteRunner) -> str:
    found = runner.device_info()
    return found.cpu if found else f"a server with key {runner.key}"


def _local(run: Tuned) -> LocalRunner:
    return LocalRunner(
        threads=run.threads,
        device=run.target.device,
        cold=run.options.measure.cache == "cold",
        weights_bytes=run.weights_bytes,
        timeout_s=run.options.tune.trial_timeout_s,
    )


def _remote(run: Tuned) -> RemoteRunner:
    tune = run.options.tune
    return RemoteRunner(
        parse_address(str(tune.tracker)),
        str(tune.key),
        device=run.target.device,
        timeout_s=tune.trial_timeout_s,
        log_path=run.folder / "logs" / "farm.log",
    )


def proposer(run: Tuned, stack: ExitStack, count: int) -> Proposer | None:
    """MetaSchedule, if it is wanted; it thinks while nothing is measured."""
    tune = run.options.tune
    if not tune.metaschedule:
        return None
    made = Proposer(run.target, seed=tune.seed, count=count, threads=os.cpu_count() or 1)
    return stack.enter_context(made)
