"""Plans rows that are compiled with tuning records: which exist, and which records they use.

The records belong to tuning, above the stages: a job passes a function that looks them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tvmscope.core.row import RowKey
from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.messages import Text, clauses, msg
from tvmscope.runtime.artifact import read_kernels
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.targets import threads_of

NO_RECORD = msg("there are no tuning records for it; see tvmscope tune")
NO_KERNEL = msg("no tuning record matches a kernel of this model; see tvmscope tune")


class Recorded(Protocol):
    """The result of a look-up of tuning records: a choice per workload, and warnings."""

    @property
    def choices(self) -> Mapping[str, Choice]: ...

    @property
    def warnings(self) -> tuple[Text, ...]: ...


class Records(Protocol):
    """Looks up the tuning records for a target and a number of threads."""

    def __call__(self, target: Target, threads: int) -> Recorded: ...


@dataclass(frozen=True)
class _Nothing:
    choices: Mapping[str, Choice] = field(default_factory=dict)
    warnings: tuple[Text, ...] = ()


def no_records(target: Target, threads: int) -> Recorded:
    """Return nothing: the look-up of jobs that compile everything untuned."""
    return _Nothing()


def with_records(
    rows: list[PlannedRow], planned: Sequence[PlannedRow], options: Options, records: Records
) -> list[PlannedRow]:
    """Return tuned rows with their records; none without records, unless requested.

    `planned` are the rows before them, among which the untuned ones are looked up.
    """
    asked = rows[0].backend.name in options.backends
    if options.compile.pipeline != "tvmscope" and not asked:
        return []
    found = records(rows[0].target, threads_of(options))
    if not (found.choices or found.warnings or asked):
        return []
    why = clauses(found.warnings) or NO_RECORD
    return [
        replace(
            row.changed(tuning=sources(found.choices) or "none"),
            choices=found.choices,
            untuned=_untuned(row.key, planned),
            warnings=found.warnings,
            unavailable=row.unavailable if found.choices else why,
            cross=row.cross and bool(found.choices),
        )
        for row in rows
    ]


def sources(choices: Mapping[str, Choice]) -> str:
    """Return the databases that choices come from."""
    return ", ".join(sorted({choice.source for choice in choices.values()}))


def _untuned(key: RowKey, planned: Sequence[PlannedRow]) -> RowKey | None:
    """Return the planned row that differs only in tuning and the backend's name."""
    for row in planned:
        if row.key == replace(key, variant=replace(key.variant, backend=row.backend.name)):
            return row.key
    return None


def are_useless(row: PlannedRow, artifacts: Path) -> bool:
    """Whether the untuned row is already compiled and no record applies to its kernels."""
    if row.untuned is None:
        return False
    kernels = read_kernels(artifacts / row.untuned.folder_name)
    return bool(kernels) and not any(kernel.workload in row.choices for kernel in kernels)
