"""Prepares a tuning run: the untuned model, its profile, and its tunable tasks.

A target that runs here is profiled here. The kernels of another target are measured one by one on
the servers of a farm; without a farm (a dry run) its tasks are known, but not their times.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import psutil

from tvmscope.analysis.roofline import limits
from tvmscope.compiler import targets
from tvmscope.core.profile import Profile
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, TuningTask
from tvmscope.errors import TuneError, UsageError
from tvmscope.machine import cpu_features
from tvmscope.messages import Text, msg
from tvmscope.stages.builder import Builder
from tvmscope.stages.places import cache_folder
from tvmscope.stages.planning.rows import built_entry
from tvmscope.stages.profile import profile_entries
from tvmscope.tuning.farm.remote import RemoteRunner
from tvmscope.tuning.farm.tracker import Device, parse_address
from tvmscope.tuning.plan import PlannedTask, make_plan, merged, profile_of
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.search.metaschedule import Proposer
from tvmscope.tuning.trials.builders import Builders
from tvmscope.tuning.trials.runners import LocalRunner, Runner
from tvmscope.tuning.trials.workshop import Setting, Workshop
from tvmscope.tuning.tuning_run import TuningRun

_MIN_REPEAT_MS = {False: 20.0, True: 2.0}
"""The shortest time of a value, without and with a GPU: see `TuneOptions`."""
CHECK_TIMEOUT_S = 600.0
"""The time limit of a GPU kernel's plain loops, which one core here runs once or twice."""


def plan(run: TuningRun, stack: ExitStack) -> list[PlannedTask]:
    """Compile the model untuned, profile it, and plan what is worth tuning."""
    run.builder = stack.enter_context(Builder(run.job.ready, run.threads))
    run.job.progress.stage(msg("compile"), msg("{model} untuned", model=run.job.ready.model.name))
    built = run.builder.build(run.job.artifacts / run.row.key.folder_name, run.target, run.config)
    run.weights_bytes = built.size_bytes if run.target.kind == "llvm" else 0
    run.build_s = built.build_s  # the next build neither imports nor loads
    run.job.progress.stage(msg("list tasks"), run.job.ready.model.name)
    tasks = run.builder.tasks(run.target, run.config, run.scratch / "functions")
    run.builder.pause()
    if run.runs_here:
        run.profile = _profile_here(run)
    elif run.job.options.tune.tracker:
        run.profile = _profile_there(run, tasks, workshop(run, stack))
    else:
        why = run.row.unavailable or ""
        run.job.progress.note(msg("the times are unknown: {why}", why=why))
    return _planned(run, tasks)


def _profile_here(run: TuningRun) -> Profile:
    job = run.job
    entry = built_entry(run.row, job.ready, job.options, job.artifacts)
    start = time.monotonic()
    for session in profile_entries(job.session, [entry], job.options, job.progress, job.logs):
        job.session = session
        run.load_s = run.load_s or time.monotonic() - start  # then come the roofs
    if not run.job.session.profiles:
        why = run.job.session.warnings[-1]
        raise TuneError(msg("the untuned model could not be profiled: {why}", why=why))
    return run.job.session.profiles[0]


def _profile_there(run: TuningRun, tasks: list[TuningTask], workshop: Workshop) -> Profile:
    """Measure each untuned kernel alone, on a server."""
    run.job.progress.stage(
        msg("measure"),
        msg("the untuned kernels, on servers with key {key}", key=run.job.options.tune.key or ""),
    )
    trials = []
    for _, trial in workshop.try_all([(task, Candidate()) for task in merged(tasks)]):
        trials.append(trial)
        run.job.progress.step(len(trials), len(tasks), trial.reason or "")
    if not any(trial.status == "ok" for trial in trials):
        why = (trials[0].reason or "") if trials else msg("the model has no kernel")
        raise TuneError(msg("no untuned kernel could be measured: {why}", why=why))
    return profile_of(tasks, trials, run.row.key)


def _planned(run: TuningRun, tasks: list[TuningTask]) -> list[PlannedTask]:
    here = records.host(run.target, run.threads)
    host = run.workshop.setting if run.workshop else here

    def tried(task: TuningTask) -> int:
        known = run.database.tried(task.key, run.target, host.threads, tvm=host.tvm, cpu=host.cpu)
        return len(known & {candidate.id for candidate in task.candidates})

    return make_plan(
        tasks,
        run.profile,
        limits(run.job.session, run.profile) if run.profile else None,
        ops=run.job.options.tune.ops,
        second_layer=run.job.options.tune.metaschedule,
        tried=tried,
    )


def workshop(run: TuningRun, stack: ExitStack) -> Workshop:
    """Return builders and a runner, made once."""
    if run.workshop is None:
        run.workshop = stack.enter_context(_workshop(run))
    return run.workshop


def _workshop(run: TuningRun) -> Workshop:
    """Make them take turns if they share cores. A GPU shares none: candidates are built during the
    measurements, on all cores but the one that launches kernels."""
    tune, cores, gpu = run.job.options.tune, cpu_features.usable_cores(), run.target.kind == "cuda"
    runner: Runner = _remote(run) if tune.tracker else _local(run)
    busy = 0 if not runner.local else min(1, cores - 1) if gpu else run.threads
    spare = cores - busy
    builders = Builders(
        spare if spare > 0 else cores, device=run.target.device, timeout_s=tune.trial_timeout_s
    )
    return Workshop(
        builders,
        runner,
        run.scratch / "built",
        _setting(run, runner),
        checker=LocalRunner(threads=1, timeout_s=CHECK_TIMEOUT_S) if gpu else None,
        take_turns=spare <= 0,
    )


def _setting(run: TuningRun, runner: Runner) -> Setting:
    tune, gpu = run.job.options.tune, run.target.kind == "cuda"
    host = records.host(run.target, run.threads)
    device = _device_of(runner, run.target) if isinstance(runner, RemoteRunner) else None
    named = (device.gpu if gpu else device.cpu) if device else None
    return Setting(
        target=run.target,
        threads=device.threads if device else run.threads,
        cpu=host.cpu if runner.local else named or f"a server with key {tune.key}",
        tvm=host.tvm,
        clock_hz=_clock_hz() if runner.local and not gpu else None,
        seed=tune.seed,
        repeat=tune.repeat,
        min_repeat_ms=_MIN_REPEAT_MS[gpu] if tune.min_repeat_ms is None else tune.min_repeat_ms,
        timeout_s=tune.trial_timeout_s,
        weights_bytes=run.weights_bytes,
        plain_target=targets.host_target(cache=cache_folder()) if gpu else None,
    )


def _clock_hz() -> float | None:
    clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return clock.current * 1e6 if clock and clock.current else None


def _device_of(runner: RemoteRunner, target: Target) -> Device | None:
    """Return the server's machine, if known; raise if it cannot run the target's code."""
    device = runner.device_info()
    if device is not None and (problem := misfit(device, target)):
        raise UsageError(
            msg(
                "servers with key {key} cannot run {target}: {problem}",
                key=runner.key,
                target=target.label,
                problem=problem,
            )
        )
    return device


def misfit(device: Device, target: Target) -> Text | None:
    """Say why a server's machine cannot run a target's code; None if it can."""
    if target.kind == "cuda":
        if device.gpu_arch == target.arch:
            return None
        if not device.gpu:
            return msg("{cpu} has no GPU", cpu=device.cpu)
        return msg("{gpu} is {arch}", gpu=device.gpu, arch=str(device.gpu_arch))
    machine, theirs = target.triple and target.triple.split("-")[0], device.triple.split("-")[0]
    if machine and theirs and machine != theirs:
        return msg(
            "{cpu} is {theirs}, not {machine}", cpu=device.cpu, theirs=theirs, machine=machine
        )
    missing = sorted(set(target.features) - set(device.features))
    return msg("{cpu} lacks {missing}", cpu=device.cpu, missing=missing) if missing else None


def _local(run: TuningRun) -> LocalRunner:
    return LocalRunner(
        threads=run.threads,
        device=run.target.device,
        cold=run.job.options.measure.cache == "cold",
        weights_bytes=run.weights_bytes,
        timeout_s=run.job.options.tune.trial_timeout_s,
    )


def _remote(run: TuningRun) -> RemoteRunner:
    tune = run.job.options.tune
    return RemoteRunner(
        parse_address(str(tune.tracker)),
        str(tune.key),
        device=run.target.device,
        timeout_s=tune.trial_timeout_s,
        log_path=run.job.logs / "farm.log",
    )


def proposer(run: TuningRun, stack: ExitStack, count: int) -> Proposer | None:
    """Return MetaSchedule, if it is requested; it works while nothing is measured."""
    tune = run.job.options.tune
    if not tune.metaschedule:
        return None
    made = Proposer(run.target, seed=tune.seed, count=count, threads=cpu_features.usable_cores())
    return stack.enter_context(made)
