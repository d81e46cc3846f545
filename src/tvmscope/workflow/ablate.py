"""Measures what each optimisation is worth: the model without it, and with nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from tvmscope.analysis.ablation import NOTHING, ONLY, SAME_CODE, WITHOUT, comparisons
from tvmscope.benchmark.plan import Entry
from tvmscope.benchmark.run import run
from tvmscope.compiler import targets
from tvmscope.core.measurement import Result
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.session import Session, save
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.progress import Progress, Silent
from tvmscope.runtime import artifact as artifacts
from tvmscope.workflow import places, records, reports, stages, switches, tuned_rows
from tvmscope.workflow.analyze import begin
from tvmscope.workflow.options import Options
from tvmscope.workflow.stages import Row

PLAIN_FLOPS_PER_S = 1.5e9
"""What loops as written reach on one core (ResNet-50's 8.2 GFLOP took 5.5 s), for estimates."""
CHEAP_RUN_S, LONGEST_RUN_S = 0.5, 20.0
"""Up to which estimated time a run is measured that nobody asked for: each optimisation alone,
and all of them off."""


def ablate(
    model: Any,
    options: Options,
    *,
    only: Sequence[str] = (),
    alone: bool = False,
    progress: Progress | None = None,
) -> Session:
    """A saved session with a row for the whole and for each optimisation left out.

    `alone` also measures each one by itself; else that is done where it takes no time, and not
    for a few that were asked for with `only`.
    """
    progress = progress or Silent()
    started = datetime.now(UTC)
    if options.output is not None:
        places.claim(options.output, force=options.force)
    target = _single(stages.resolve_targets(options))
    rows = plan(options, target, only, alone=alone)
    for warning in rows[0].warnings:
        progress.note(warning)
    progress.stage("load", stages.name_of(model))
    with stages.prepared(model, _without_export(options)) as ready:
        folder = options.output or places.session_folder(
            f"{ready.model.name}-ablation", target.device, started
        )
        session = begin(ready, options, (target,), started)
        try:
            session = _measure(session, rows, ready, options, folder, alone, progress)
            reports.write(session, folder, progress, redacted=options.redact)
            return session
        finally:
            progress.note(f"session: {folder}")


def _measure(
    session: Session,
    rows: Sequence[Row],
    ready: Prepared,
    options: Options,
    folder: Path,
    alone: bool,
    progress: Progress,
) -> Session:
    """Build, verify and time all rows in turns; what is done is on disk, also when interrupted."""

    def with_results(results: tuple[Result, ...], complete: bool) -> Session:
        compared = comparisons(results)
        return replace(session, results=results, comparisons=compared, complete=complete)

    def keep(results: tuple[Result, ...]) -> None:
        save(with_results(results, complete=False), folder)

    with ExitStack() as compilers:
        known = switches.of_device(rows[0].target.device)
        skipping = _Skipping(alone, known)
        entries = stages.plan_entries(rows, ready, options, folder / "artifacts", compilers)
        results = run(
            [skipping.lazily(e, r) for e, r in zip(entries, rows, strict=True)],
            options.measure,
            reference=ready.reference_path,
            reference_name=stages.REFERENCES[ready.model.format],
            tolerances=partial(stages.tolerance, options),
            atol=options.atol,
            progress=progress,
            on_update=keep,
            log_dir=folder / "logs",
        )
    done = with_results(results, complete=True)
    save(done, folder)
    return done


def _single(where: tuple[Target, ...]) -> Target:
    if len(where) != 1:
        raise UsageError("ablate takes one --target: its rows differ in optimisations only")
    return where[0]


def _without_export(options: Options) -> Options:
    return replace(options, load=replace(options.load, need_onnx=False))


def plan(
    options: Options, target: Target, only: Sequence[str] = (), *, alone: bool = False
) -> list[Row]:
    """The whole first, then each optimisation left out, then nothing, then each one alone."""
    if options.compile.pipeline != "tvmscope":
        raise UsageError("ablate switches parts of our own pipeline: leave --pipeline out")
    plain = replace(options, backends=("tvmscope",), graph=False)
    rows = stages.plan_rows(plain, (target,), "torch")
    if len(rows) != 1:
        raise UsageError("ablate takes one --precision")
    whole = _tuned(replace(rows[0], compile=options.compile), options)
    if switches.TUNING.name in only and not _config(whole).choices:
        none = f"there are no tuning records for {target.label}; see tvmscope tune"
        raise UsageError(f"nothing is tuned here: {'; '.join(whole.warnings) or none}")
    known = _applicable(switches.of_device(target.device), whole)
    chosen = switches.choose(known, only)
    planned = [whole, *(_without(whole, switch, options) for switch in chosen)]
    able = [switch for switch in chosen if switch.alone]
    if able and (alone or not only):
        base = _config(whole)
        planned.append(_bare(whole, known, NOTHING, switches.off(known, base)))
        planned += [
            _bare(whole, known, ONLY + s.name, switches.alone(s, known, base), s) for s in able
        ]
    return planned


def _tuned(row: Row, options: Options) -> Row:
    """With what records choose for its own target and threads, and what they have to say."""
    config, threads = _config(row), row.threads or stages.threads_of(options)
    found = records.find_choices(options.db, row.target, threads)
    choices = options.compile.choices or found.choices
    return replace(_compiled(row, replace(config, choices=choices)), warnings=found.warnings)


def _compiled(row: Row, config: CompileOptions) -> Row:
    tuning = tuned_rows.sources(config.choices) or None
    return replace(row, compile=config, variant=replace(row.variant, tuning=tuning), warnings=())


def _config(row: Row) -> CompileOptions:
    assert row.compile is not None  # `plan` sets it
    return row.compile


def _applicable(known: Sequence[switches.Optimisation], whole: Row) -> list[switches.Optimisation]:
    """Without the target's features where it has none, or where the lesser target cannot run; and
    without what one thread or no record makes no difference to."""
    target, choices = whole.target, _config(whole).choices
    return [
        s
        for s in known
        if (s.target is None or _can_lack(target))
        and (s.threads is None or target.cores > s.threads)
        and (not s.tuned or choices)
    ]


def _can_lack(target: Target) -> bool:
    return target.triple is None and target.vector_bits > 128


def _changed(row: Row, change: str, config: CompileOptions) -> Row:
    row = _compiled(row, config)
    return replace(row, variant=replace(row.variant, change=change))


def _lesser(row: Row, switch: switches.Optimisation) -> Row:
    target = row.target
    if switch.target is not None:
        target = _named(switch.target, target.cores)
    if switch.threads is not None:
        target = replace(target, cores=switch.threads)
    return replace(row, target=target, threads=switch.threads)


@cache  # a row after the other asks, and a child process answers
def _named(target: str, cores: int) -> Target:
    return targets.resolve(target, cores=cores)


def _without(whole: Row, switch: switches.Optimisation, options: Options) -> Row:
    row = _changed(whole, WITHOUT + switch.name, switches.off([switch], _config(whole)))
    if switch.target is None and switch.threads is None:
        return row
    row = _tuned(_lesser(row, switch), options)  # not every record speaks for it
    new = [w for w in row.warnings if w not in whole.warnings]
    if _config(whole).choices and not _config(row).choices and not new:
        new = [f"without what was tuned: no record speaks for {row.target.label}"]
    return replace(row, warnings=tuple(new))


def _bare(
    whole: Row,
    known: Sequence[switches.Optimisation],
    change: str,
    config: CompileOptions,
    kept: switches.Optimisation | None = None,
) -> Row:
    """A row with nothing but what `config` leaves on; the target's features go too."""
    row = whole
    for switch in known:
        if switch.target is not None and switch is not kept:
            row = _lesser(row, switch)
    return _changed(row, change, config)


class _Skipping:
    """Spares rows whose time is known or not worth it, once what they compare with is built."""

    def __init__(self, alone: bool, known: Sequence[switches.Optimisation]) -> None:
        self.alone = alone
        self.known = {WITHOUT + each.name: each for each in known}
        self.built: dict[str | None, Path] = {}

    def lazily(self, entry: Entry, row: Row) -> Entry:
        """The entry, in one chain with all others: each is built after what it is compared with."""
        entry = replace(entry, chain="ablation")
        return (
            entry if entry.build is None else replace(entry, build=partial(self.make, entry, row))
        )

    def make(self, entry: Entry, row: Row) -> Entry:
        """Build what the row runs, unless it is clear that nobody wants to wait for it."""
        assert entry.build is not None
        change = row.variant.change
        added = change is not None and change.startswith(ONLY)
        if added and (wait := self._too_long(CHEAP_RUN_S)):
            return replace(entry, unavailable=wait)
        if change is not None and (why := self._needless(change)):
            return replace(entry, unavailable=why)
        made = entry.build()
        if made.failure is not None or made.unavailable is not None:
            return made
        self.built[change] = Path(made.request.artifact)
        base = self.built.get(NOTHING if added else None)
        if change == NOTHING:
            return replace(made, unavailable=self._too_long(LONGEST_RUN_S))
        if change is not None and base and row.threads is None and _code(base) == _code(made):
            return replace(made, unavailable=SAME_CODE)
        return made

    def _needless(self, change: str) -> str | None:
        """Why a row that leaves out only rules, or only records, leaves out nothing of the whole;
        None where it does, or where that is not known before it is built."""
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

    def _too_long(self, limit_s: float) -> str | None:
        """Why a run of plain loops is not worth its time, in words; None where it is."""
        folder = self.built.get(NOTHING)
        if folder is None or self.alone:
            return None
        work = {kernel.name: kernel.flops or 0.0 for kernel in artifacts.read_kernels(folder)}
        flops = sum(work.get(call.kernel, 0.0) for call in artifacts.read(folder).kernels)
        seconds = flops / PLAIN_FLOPS_PER_S
        return f"about {seconds:.0f} s a run: --alone measures it" if seconds > limit_s else None


def _code(built: Path | Entry) -> tuple[Any, ...]:
    """What tells two builds of a model apart: target, calls and kernels, constants by their size.

    The library itself will not do: linkers write the names of temporary files into it.
    """
    folder = built if isinstance(built, Path) else Path(built.request.artifact)
    found = artifacts.read(folder)
    kernels = (folder / artifacts.KERNELS).read_bytes()
    return found.target, found.kernels, kernels, found.size_bytes
