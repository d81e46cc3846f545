"""Maintains record files: summarises, merges, prunes and checks them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from tvmscope.core.tuning import Trial
from tvmscope.errors import SchemaError, UsageError
from tvmscope.messages import Text, msg
from tvmscope.tuning.records import functions
from tvmscope.tuning.records.database import append, read, replace_with, scan
from tvmscope.tuning.records.lines import from_line, is_current, to_line
from tvmscope.tuning.records.matching import WORTH, gain
from tvmscope.tuning.records.validity import outdated

_BATCH = 1000
_LISTED = 100
"""Faults that are listed with their line; all are counted."""

Group = tuple[str, str, int]
"""A workload, a target's label, a number of threads."""


@dataclass(kw_only=True)
class Summary:
    """The content of a file for one workload, target and number of threads."""

    trials: int = 0
    failed: int = 0
    validated: int = 0
    best_s: float | None = None
    gain: float | None = None
    """The largest gain of the validated trials."""

    def add(self, trial: Trial) -> None:
        """Count one more trial."""
        self.validated += trial.stage == "validated"
        self.trials += trial.stage == "search"
        if trial.status != "ok":
            self.failed += trial.stage == "search"
            return
        self.best_s = min(median(trial.seconds), self.best_s or float("inf"))
        if trial.stage == "validated":
            self.gain = max(gain(trial), self.gain if self.gain is not None else -1.0)


def summarize(trials: Iterable[Trial]) -> dict[Group, Summary]:
    """Return a summary for each workload, target and number of threads."""
    found: dict[Group, Summary] = {}
    for trial in trials:
        key = (trial.workload, trial.target.label, trial.threads)
        found.setdefault(key, Summary()).add(trial)
    return found


@dataclass(kw_only=True)
class Fault:
    """A line with an error."""

    line: int
    what: Text


@dataclass(kw_only=True)
class Report:
    """The result of `verify` for a file."""

    records: int = 0
    faults: int = 0
    listed: list[Fault] = field(default_factory=list)
    """The first faults."""
    remeasured: int = 0
    """Trials of a search whose candidate had been measured before, on the same CPU: allowed in
    merged files, but a resumed search makes none."""

    def fault(self, line: int, what: Text) -> None:
        """Note one."""
        self.faults += 1
        if len(self.listed) < _LISTED:
            self.listed.append(Fault(line=line, what=what))


def verify(path: Path) -> Report:
    """Read every line completely and report the wrong ones."""
    report = Report()
    lines: dict[bytes, int] = {}
    measured: set[bytes] = set()
    with path.open("rb") as stream:
        for line in scan(stream):
            try:
                if line.text is None:
                    raise SchemaError(msg("too long to be a record"))
                trial = from_line(line.text)
            except SchemaError as e:
                report.fault(line.number, e.message)
                continue
            report.records += 1
            if not line.text.endswith(b"\n"):
                report.fault(line.number, msg("the last line has no end"))
            content = _digest(line.text) if is_current(line.text) else _content(trial)
            if content in lines:
                report.fault(line.number, msg("the same record as line {n}", n=lines[content]))
            lines.setdefault(content, line.number)
            if trial.stage == "search":
                report.remeasured += (identity := _identity(trial)) in measured
                measured.add(identity)
    return report


def _content(trial: Trial) -> bytes:
    return _digest(to_line(trial))


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line.rstrip(b"\n"), digest_size=8).digest()


def _identity(trial: Trial) -> bytes:
    """Return a key that two trials of one candidate under the same circumstances share."""
    return _circumstances(trial, trial.candidate.id)


def _circumstances(trial: Trial, *more: str) -> bytes:
    """Return a key that trials of one workload on the same machine share."""
    target = (trial.target.kind, trial.target.arch, trial.target.triple, trial.target.features)
    key = (trial.workload, *more, target, trial.threads, trial.tvm, trial.cpu)
    return hashlib.blake2b(repr(key).encode(), digest_size=8).digest()


@dataclass(kw_only=True)
class Moved:
    """The numbers of written and skipped records."""

    added: int = 0
    duplicates: int = 0
    rejected: list[Fault] = field(default_factory=list)


def add(trials: Iterable[Trial], path: Path) -> Moved:
    """Append the trials that a file does not have yet."""
    moved, batch = Moved(), list[Trial]()
    known = {_content(trial) for trial in read(path)} if path.exists() else set()
    for trial in trials:
        if (content := _content(trial)) in known:
            moved.duplicates += 1
            continue
        known.add(content)
        batch.append(trial)
        moved.added += 1
        if len(batch) == _BATCH:
            append(path, *batch)
            batch.clear()
    if batch:
        append(path, *batch)
    return moved


def merge(sources: Iterable[Path], path: Path) -> Moved:
    """Write the records of several files to one, each once; skip and report other lines."""
    rejected: list[Fault] = []

    def trials_of(source: Path) -> Iterator[Trial]:
        def reject(line: int, why: Text) -> None:
            rejected.append(Fault(line=line, what=msg("{file}: {why}", file=source, why=why)))

        for trial in read(source, reject):
            functions.carry(source, path, trial)
            yield trial

    moved = add(chain.from_iterable(map(trials_of, sources)), path)
    moved.rejected = rejected
    return moved


def best(trials: Iterable[Trial]) -> list[Trial]:
    """Return the validated trial that a build would use of each workload and machine, in an order
    independent of that of the trials. Trials without gain, or of other rules, are left out."""
    latest: dict[tuple[bytes, str], Trial] = {}
    for trial in trials:
        if trial.stage == "validated" and outdated(trial) is None:
            key = (_circumstances(trial), trial.candidate.id)
            if key not in latest or latest[key].date <= trial.date:
                latest[key] = trial
    chosen: dict[bytes, Trial] = {}
    for (machine, _), trial in sorted(latest.items()):
        rival = chosen.get(machine)
        if gain(trial) >= WORTH and (rival is None or gain(rival) < gain(trial)):
            chosen[machine] = trial
    return sorted(chosen.values(), key=lambda t: (t.workload, t.target.label, t.threads, t.cpu))


@dataclass(kw_only=True)
class Pruned:
    """The numbers of kept and removed records."""

    kept: int = 0
    removed: int = 0
    unreadable: int = 0
    removed_from: Counter[str] = field(default_factory=Counter)
    """Removed records by workload."""
    backup: Path | None = None


def prune(path: Path, keep: int, *, backup: Path | None) -> Pruned:
    """Keep all validated trials and the `keep` fastest of each workload, target and threads.

    Failed and slower ones are removed, and with them the knowledge that they were tried.
    """
    if keep < 1:
        raise UsageError(msg("--keep {keep}: give at least 1", keep=keep))
    done = Pruned(backup=backup)

    def lines() -> Iterator[bytes]:
        limits = _limits(path, keep)
        for trial in read(path, lambda _n, _why: _count_unreadable(done)):
            key = (trial.workload, trial.target, trial.threads)
            if trial.stage == "validated" or _take(limits, repr(key), trial):
                done.kept += 1
                yield to_line(trial)
            else:
                done.removed += 1
                done.removed_from[trial.workload] += 1

    replace_with(path, lines(), backup=backup)
    return done


def _count_unreadable(done: Pruned) -> None:
    done.unreadable += 1


def _limits(path: Path, keep: int) -> dict[str, list[float]]:
    """Return the `keep` smallest medians of each group."""
    found: dict[str, list[float]] = {}
    for trial in read(path):
        if trial.stage == "search" and trial.status == "ok":
            times = found.setdefault(repr((trial.workload, trial.target, trial.threads)), [])
            times.append(median(trial.seconds))
            times.sort()
            del times[keep:]
    return found


def _take(limits: dict[str, list[float]], key: str, trial: Trial) -> bool:
    """Whether a trial is one of the fastest; each rank is used once."""
    if trial.status != "ok" or (time := median(trial.seconds)) not in limits.get(key, ()):
        return False
    limits[key].remove(time)
    return True
