"""Rows that are compiled with tuning records: which there are, and what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.tuning import Choice
from tvmscope.messages import clauses, msg
from tvmscope.runtime.artifact import read_kernels
from tvmscope.workflow import records
from tvmscope.workflow.options import Options

if TYPE_CHECKING:
    from tvmscope.workflow.stages import Row

NO_RECORD = msg("there are no tuning records for it; see tvmscope tune")
NO_KERNEL = msg("no tuning record is about a kernel of this model; see tvmscope tune")


def with_records(rows: list[Row], options: Options, threads: int) -> list[Row]:
    """Tuned rows with what the records say; none where there are no records, unless asked for."""
    asked = rows[0].backend.name in options.backends
    if options.compile.pipeline != "tvmscope" and not asked:
        return []
    found = records.find_choices(options.db, rows[0].target, threads)
    if not (found.choices or found.warnings or asked):
        return []
    why = clauses(found.warnings) or NO_RECORD
    return [
        replace(
            row,
            variant=replace(row.variant, tuning=sources(found.choices) or "none"),
            choices=found.choices,
            warnings=found.warnings,
            unavailable=row.unavailable if found.choices else why,
            cross=row.cross and bool(found.choices),
        )
        for row in rows
    ]


def sources(choices: Mapping[str, Choice]) -> str:
    """The databases that choices are from."""
    return ", ".join(sorted({choice.source for choice in choices.values()}))


def are_useless(row: Row, artifacts: Path) -> bool:
    """Whether the untuned row is compiled already and shows that no record is about its kernels."""
    plain = replace(row.variant, backend="tvmscope", tuning=None)
    kernels = read_kernels(artifacts / replace(row, variant=plain).folder_name)
    return bool(kernels) and not any(kernel.workload in row.choices for kernel in kernels)
