"""The jobs of `tvmscope db`: list, show, merge, prune, export, import and verify records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tvmscope.core.tuning import SHIPPED_NAME, Trial
from tvmscope.errors import TuneError, UsageError
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_isolated
from tvmscope.messages import msg
from tvmscope.stages.options import NO_RECORDS
from tvmscope.tuning.records import functions, trace_export, upkeep
from tvmscope.tuning.records import lookup as records
from tvmscope.tuning.records.database import Database, read
from tvmscope.tuning.records.lines import to_line
from tvmscope.tuning.records.trace_export import TraceRecord
from tvmscope.tuning.records.upkeep import Fault, Moved, Pruned, Report

_WRITE = here(trace_export.write)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The records that a command is about."""

    db: str | None = None
    target: str | None = None
    """A target's label or its prefix: `cpu`, `cpu:znver4`."""
    workload: str | None = None
    """A part of the workload's name."""

    def databases(self) -> list[Database]:
        """Return the files; a named one must exist."""
        if self.db not in (None, NO_RECORDS) and not Path(str(self.db)).exists():
            raise UsageError(msg("there is no database {db}", db=self.db))
        return records.databases(self.db)

    def takes(self, trial: Trial) -> bool:
        """Whether a trial is selected."""
        label = trial.target.label
        named = self.target is None or label == self.target or label.startswith(f"{self.target}:")
        return named and (self.workload or "") in trial.workload


@dataclass(frozen=True, kw_only=True)
class WorkloadSummary:
    """The content of a file for one workload, target and number of threads."""

    workload: str
    target: str
    threads: int
    summary: upkeep.Summary


@dataclass(frozen=True, kw_only=True)
class FileSummary:
    """The content of a file."""

    name: str
    path: str
    rows: tuple[WorkloadSummary, ...]
    rejected: int
    trouble: str | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the package."""
        return self.name == SHIPPED_NAME

    @property
    def trials(self) -> int:
        """The number of all its trials."""
        return sum(row.summary.trials + row.summary.validated for row in self.rows)


def summaries(chosen: Selection) -> list[FileSummary]:
    """Return the content of each file."""
    return [_summary(database, chosen) for database in chosen.databases()]


def _summary(database: Database, chosen: Selection) -> FileSummary:
    faults = list[int]()
    try:
        stream = read(database.path, lambda line, _why: faults.append(line))
        found = upkeep.summarize(trial for trial in stream if chosen.takes(trial))
    except OSError as e:
        found, database.trouble = {}, str(e.strerror or e)
    rows = (
        WorkloadSummary(workload=w, target=t, threads=n, summary=s)
        for (w, t, n), s in found.items()
    )
    return FileSummary(
        name=database.name,
        path=str(database.path),
        rows=tuple(sorted(rows, key=lambda row: (row.target, row.workload, row.threads))),
        rejected=len(faults),
        trouble=database.trouble,
    )


def fastest(chosen: Selection, top: int) -> list[tuple[str, Trial]]:
    """Return the fastest trials of each selected workload, each with its file's name."""
    groups: dict[upkeep.Group, list[tuple[float, str, Trial]]] = {}
    for database in chosen.databases():
        for trial in _readable(database, chosen):
            key = (trial.workload, trial.target.label, trial.threads)
            time = median(trial.seconds) if trial.status == "ok" else float("inf")
            group = groups.setdefault(key, [])
            group.append((time, database.name, trial))
            group.sort(key=lambda entry: entry[0])
            del group[top:]
    return [(name, trial) for key in sorted(groups) for _time, name, trial in groups[key]]


def _readable(database: Database, chosen: Selection) -> Iterator[Trial]:
    return (trial for trial in database.trials() if chosen.takes(trial))


def merge(sources: list[Path], output: Path, *, force: bool) -> Moved:
    """Merge several files into a new one."""
    _must_exist(sources)
    if output.exists() and not force:
        raise UsageError(msg("{output} exists; --force adds to it", output=output))
    if any(output.exists() and output.samefile(source) for source in sources):
        raise UsageError(msg("{output} is one of the files to merge; give another", output=output))
    return upkeep.merge(sources, output)


def prune(file: Path, keep: int, *, yes: bool) -> Pruned:
    """Keep the best; the original file stays beside it unless `yes`."""
    _must_exist([file])
    return upkeep.prune(file, keep, backup=None if yes else _free(file))


def _free(file: Path) -> Path:
    """Return a free name for a backup."""
    backup, count = file.with_name(f"{file.name}.bak"), 1
    while backup.exists():
        count += 1
        backup = file.with_name(f"{file.name}.bak{count}")
    return backup


def lines(chosen: Selection, output: Path | None) -> Iterator[bytes]:
    """Yield the selected records as lines; the functions of traces are copied with a file."""
    for database in chosen.databases():
        for trial in _readable(database, chosen):
            if output is not None:
                functions.carry(database.path, output, trial)
            yield to_line(trial)


def best_lines(chosen: Selection) -> Iterator[bytes]:
    """Yield the selected records that builds would use; traces without their functions, which
    builds do not need."""
    found = (trial for database in chosen.databases() for trial in _readable(database, chosen))
    return map(to_line, upkeep.best(found))


@dataclass(kw_only=True)
class Exported:
    """The numbers of an export to a MetaSchedule database."""

    written: int = 0
    without_trace: int = 0
    without_function: int = 0
    failures: list[str] = field(default_factory=list)


def to_metaschedule(chosen: Selection, folder: Path) -> Exported:
    """Write the selected trace records as a MetaSchedule database into a new folder."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(msg("{folder} is not empty; give a new folder", folder=folder))
    done, found = Exported(), list[TraceRecord]()
    for database in chosen.databases():
        for trial in _readable(database, chosen):
            if trial.candidate.trace is None or trial.status != "ok":
                done.without_trace += trial.candidate.trace is None
            elif (function := functions.of(database.path, trial)) is None:
                done.without_function += 1
            else:
                found.append(
                    TraceRecord(
                        function=str(function),
                        trace=trial.candidate.trace,
                        seconds=trial.seconds,
                        target=trial.target,
                    )
                )
    if not found:
        raise TuneError(
            msg(
                "no trace record with its function to export: {without_trace} records have no "
                "trace, {without_function} no function",
                without_trace=done.without_trace,
                without_function=done.without_function,
            )
        )
    written = run_isolated(_WRITE, found, str(folder))
    done.written, done.failures = written
    return done


def take_in(file: Path, db: str | None) -> dict[str, Moved]:
    """Add a file's records to the user's, each to its own target's file; return counts by file."""
    _must_exist([file])
    rejected = list[Fault]()
    places: dict[Path, list[Trial]] = {}
    for trial in read(file, lambda line, why: rejected.append(Fault(line=line, what=why))):
        place = records.file_to_write(db, trial.target)
        functions.carry(file, place, trial)
        places.setdefault(place, []).append(trial)
    done = {str(place): upkeep.add(trials, place) for place, trials in places.items()}
    if rejected:
        done[str(file)] = Moved(rejected=rejected)
    return done


def verify(files: list[Path], db: str | None) -> dict[str, Report]:
    """Return the faults of each file; without files, of all that are searched."""
    _must_exist(files)
    found = files or [database.path for database in Selection(db=db).databases()]
    return {str(file): upkeep.verify(file) for file in found}


def _must_exist(files: list[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UsageError(msg("there is no file {file}", file=file))
