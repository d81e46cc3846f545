"""Measures the worth of each optimisation: the model without it, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from tvmscope.analysis.ablation import NOTHING, ONLY, SAME_CODE, WITHOUT, comparisons
from tvmscope.benchmark.entry import Entry
from tvmscope.compiler import targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.errors import UsageError
from tvmscope.messages import Text, clauses, msg
from tvmscope.progress import Progress, Silent
from tvmscope.runtime import artifact as artifacts
from tvmscope.stages.build import build_row
from tvmscope.stages.builder import Builder
from tvmscope.stages.device import on_device
from tvmscope.stages.job import Job, loaded_job
from tvmscope.stages.measure_rows import framework_outputs, measure_rows, unmeasured
from tvmscope.stages.options import Options
from tvmscope.stages.planning import tuned_rows
from tvmscope.stages.planning.plan import candidates, plan_rows, with_export
from tvmscope.stages.planning.rows import PlannedRow, unbuilt_entry
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.tuning.records import lookup as records
from tvmscope.workflow.ablating import switches

PLAIN_FLOPS_PER_S = 1.5e9
"""The speed of plain loops on one core (ResNet-50's 8.2 GFLOP took 5.5 s), for estimates."""
CHEAP_RUN_S, LONGEST_RUN_S = 0.5, 20.0
"""The largest estimated time of a run that is measured without being requested: each optimisation
alone, and all of them off."""


@on_device
def ablate(
    model: Any,
    options: Options,
    *,
    only: Sequence[str] = (),
    alone: bool = False,
    progress: Progress | None = None,
) -> Session:
    """Return a saved session with a row for the whole and for each optimisation left out.

    `alone` also measures each one by itself; otherwise that is done if it is quick, and not for a
    few that were selected with `only`.
    """
    progress = progress or Silent()
    target = _single(resolve_targets(options))
    asked = ask(options, target, only, alone=alone)  # before a load that may take minutes
    for warning in asked.warnings:
        progress.note(warning)
    options, place = with_export(options, wanted=False), f"ablation-{target.device}"
    with loaded_job(model, options, (target,), place, progress) as job:
        built = _build(job, plan(options, asked, job.ready.model.format), alone)
        measured = measure_rows(
            built, options, framework_outputs(job.ready), progress,
            compare=comparisons, on_update=job.keep_measured, log_dir=job.logs,
        )  # fmt: skip
        job.keep_measured(measured)
        session = job.save_complete()
        job.write_reports()
        return session


def _build(job: Job, rows: Sequence[PlannedRow], alone: bool) -> list[Entry]:
    """Compile one row after the other: each after the row it is compared with."""
    entries = [unbuilt_entry(row, job.ready, job.options) for row in rows]
    job.keep_measured(unmeasured(entries))
    with Builder(job.ready, threads_of(job.options)) as builder:
        skipping = _Skipping(alone, switches.of_device(rows[0].target.device))
        for number, row in enumerate(rows):
            job.progress.stage(msg("compile"), row.key.label)
            build = partial(build_row, row, job.ready, job.options, job.artifacts, builder)
            entries[number] = skipping.made(row, entries[number], build)
            job.progress.step(number + 1, len(rows), row.key.label)
            job.keep_measured(unmeasured(entries))
    return entries


def _single(where: tuple[Target, ...]) -> Target:
    if len(where) != 1:
        raise UsageError(msg("ablate takes one --target: its rows differ in optimisations only"))
    return where[0]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The optimisations to disable, and the options of the whole: all that needs no model."""

    target: Target
    compile: CompileOptions
    """The options of the whole, with the choices of records."""
    known: Sequence[switches.Optimisation]
    """All optimisations that could be disabled."""
    chosen: Sequence[switches.Optimisation]
    with_nothing: bool
    """Whether there is also a row with everything disabled, and one with each thing alone."""
    warnings: tuple[str, ...] = ()


def ask(
    options: Options, target: Target, only: Sequence[str] = (), *, alone: bool = False
) -> Asked:
    """Return what an ablation would disable; raise if that is impossible."""
    if options.compile.pipeline != "tvmscope":
        raise UsageError(msg("ablate switches parts of our own pipeline: omit --pipeline"))
    if len(candidates(_plain(options), (target,))) != 1:
        raise UsageError(msg("ablate takes one --precision"))
    found = records.find_choices(options.db, target, threads_of(options))
    choices = options.compile.choices or found.choices
    if switches.TUNING.name in only and not choices:
        none = msg(
            "there are no tuning records for {target}; see tvmscope tune", target=target.label
        )
        why = clauses(found.warnings) or none
        raise UsageError(msg("no kernel is tuned: {why}", why=why))
    known = _applicable(switches.of_device(target.device), target, choices)
    if options.graph is False:
        known = [switch for switch in known if not switch.graph]
    chosen = switches.choose(known, only)
    return Asked(
        target=target,
        compile=replace(options.compile, choices=choices),
        known=known,
        chosen=chosen,
        with_nothing=(alone or not only) and any(switch.alone for switch in chosen),
        warnings=found.warnings,
    )


def plan(options: Options, asked: Asked, model_format: str) -> list[PlannedRow]:
    """Return the whole first, then each optimisation left out, then nothing, then each alone."""
    (row,) = plan_rows(_plain(options), (asked.target,), model_format)
    whole = replace(_compiled(row, asked.compile), warnings=asked.warnings)
    planned = [whole, *(_without(whole, switch, options) for switch in asked.chosen)]
    if asked.with_nothing:
        known, base = asked.known, asked.compile
        planned.append(_bare(whole, known, NOTHING, switches.off(known, base)))
        planned += [
            _bare(whole, known, ONLY + s.name, switches.alone(s, known, base), s)
            for s in asked.chosen
            if s.alone
        ]
    return planned


def _plain(options: Options) -> Options:
    """Return options for one row of ours; on a GPU a CUDA graph, itself an optimisation."""
    return replace(options, backends=("tvmscope",), graph=options.graph is not False)


def _tuned(row: PlannedRow, options: Options) -> PlannedRow:
    """Return the row with the choices and warnings of records for its own target and threads."""
    config, threads = _config(row), row.threads or threads_of(options)
    found = records.find_choices(options.db, row.target, threads)
    choices = options.compile.choices or found.choices
    return replace(_compiled(row, replace(config, choices=choices)), warnings=found.warnings)


def _compiled(row: PlannedRow, config: CompileOptions) -> PlannedRow:
    tuning = tuned_rows.sources(config.choices) or None
    return replace(row.changed(tuning=tuning), compile=config, warnings=())


def _config(row: PlannedRow) -> CompileOptions:
    assert row.compile is not None  # `plan` sets it
    return row.compile


def _applicable(
    known: Sequence[switches.Optimisation], target: Target, choices: Mapping[str, Choice]
) -> list[switches.Optimisation]:
    """Return the optimisations without the target's features if it has none, or if the lesser
    target cannot run, and without those that one thread or missing records make irrelevant."""
    return [
        s
        for s in known
        if (s.target is None or _can_lack(target))
        and (s.threads is None or target.cores > s.threads)
        and (not s.tuned or choices)
    ]


def _can_lack(target: Target) -> bool:
    return target.triple is None and target.vector_bits > 128


def _changed(row: PlannedRow, change: str, config: CompileOptions) -> PlannedRow:
    return _compiled(row, config).changed(change=change)


def _lesser(row: PlannedRow, switch: switches.Optimisation) -> PlannedRow:
    target = row.target
    if switch.target is not None:
        target = _named(switch.target, target.cores)
    if switch.threads is not None:
        target = replace(target, cores=switch.threads)
    return replace(row.moved(target), threads=switch.threads)


@cache  # many rows need it, and a child process computes it
def _named(target: str, cores: int) -> Target:
    return targets.resolve(target, cores=cores)


def _without(whole: PlannedRow, switch: switches.Optimisation, options: Options) -> PlannedRow:
    row = _changed(whole, WITHOUT + switch.name, switches.off([switch], _config(whole)))
    if switch.graph:
        return row.changed(graph=False)
    if switch.target is None and switch.threads is None:
        return row
    row = _tuned(_lesser(row, switch), options)  # not every record applies to it
    new = [w for w in row.warnings if w not in whole.warnings]
    if _config(whole).choices and not _config(row).choices and not new:
        target = row.target.label
        new = [msg("tuned kernels are left out: no record matches {target}", target=target)]
    return replace(row, warnings=tuple(new))


def _bare(
    whole: PlannedRow,
    known: Sequence[switches.Optimisation],
    change: str,
    config: CompileOptions,
    kept: switches.Optimisation | None = None,
) -> PlannedRow:
    """Return a row with only what `config` leaves on; the target's features go, too."""
    row = whole
    for switch in known:
        if switch.target is not None and switch is not kept:
            row = _lesser(row, switch)
    return _changed(row, change, config)


class _Skipping:
    """Skips rows whose time is known or not worth measuring, once their counterparts are built."""

    def __init__(self, alone: bool, known: Sequence[switches.Optimisation]) -> None:
        self.alone = alone
        self.known = {WITHOUT + each.name: each for each in known}
        self.built: dict[str | None, Path] = {}

    def made(self, row: PlannedRow, entry: Entry, build: Callable[[], Entry]) -> Entry:
        """Return the result of `build` for the row, unless it is clearly not worth the wait."""
        if not row.builds:
            return entry
        change = row.variant.change
        added = change is not None and change.startswith(ONLY)
        if added and (wait := self._too_long(CHEAP_RUN_S)):
            return replace(entry, unavailable=wait)
        if change is not None and (why := self._needless(change)):
            return replace(entry, unavailable=why)
        made = build()
        if made.failure is not None or made.unavailable is not None:
            return made
        self.built[change] = Path(made.request.artifact)
        base = self.built.get(NOTHING if added else None)
        if change == NOTHING:
            return replace(made, unavailable=self._too_long(LONGEST_RUN_S))
        if change is not None and base and row.threads is None and _code(base) == _code(made):
            return replace(made, unavailable=SAME_CODE)
        return made

    def _needless(self, change: str) -> Text | None:
        """Say why a row without certain rules or records equals the whole; None if it differs, or
        if that is not known before it is built."""
        whole = self.built.get(None)
        switch = self.known.get(change)
        if whole is None or switch is None or switch.passes or switch.overrides:
            return None
        if not (switch.rules or switch.tuned):
            return None
        kernels = artifacts.read_kernels(whole)
        if switch.tuned:
            return None if any(kernel.tuned for kernel in kernels) else tuned_rows.NO_KERNEL
        return None if any(kernel.rule in switch.rules for kernel in kernels) else SAME_CODE

    def _too_long(self, limit_s: float) -> Text | None:
        """Say why a run of plain loops is not worth its time; None if it is."""
        folder = self.built.get(NOTHING)
        if folder is None or self.alone:
            return None
        work = {kernel.name: kernel.flops or 0.0 for kernel in artifacts.read_kernels(folder)}
        flops = sum(work.get(call.kernel, 0.0) for call in artifacts.read(folder).kernels)
        seconds = flops / PLAIN_FLOPS_PER_S
        if seconds <= limit_s:
            return None
        return msg("a run takes about {seconds:.0f} s; --alone measures it", seconds=seconds)


def _code(built: Path | Entry) -> tuple[Any, ...]:
    """Return what distinguishes two builds: target, calls and kernels, constants by their size.

    The library itself is unsuitable: linkers write the names of temporary files into it.
    """
    folder = built if isinstance(built, Path) else Path(built.request.artifact)
    found = artifacts.read(folder)
    kernels = (folder / artifacts.KERNELS).read_bytes()
    return found.target, found.graph, found.kernels, kernels, found.size_bytes
