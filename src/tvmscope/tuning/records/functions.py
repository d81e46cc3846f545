"""Stores the kernels that trace records start from, next to the database, one file each.

A trace without its function means nothing to MetaSchedule; a function is a few kilobytes that many
trials share, so it is not part of their lines.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tvmscope.core.tuning import Params, Trial
from tvmscope.storage.files import write_text_atomic


def place(database: Path, workload: str, params: Params) -> Path:
    """Where the function of a workload, lowered with `params`, is kept (as TVM's JSON)."""
    text = json.dumps([workload, sorted(params.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return database.parent / "functions" / f"{digest}.json"


def of(database: Path, trial: Trial) -> Path | None:
    """The file with a trace record's function, if it was kept."""
    file = place(database, trial.workload, trial.candidate.params)
    return file if trial.candidate.trace is not None and file.is_file() else None


def keep(database: Path, trial: Trial, function: str) -> None:
    """Keep the function of a trace record, unless it is there."""
    file = place(database, trial.workload, trial.candidate.params)
    if trial.candidate.trace is not None and not file.exists():
        write_text_atomic(file, function)


def carry(source: Path, database: Path, trial: Trial) -> None:
    """Take a record's function along to another database."""
    file = of(source, trial)
    if file is not None:
        keep(database, trial, file.read_text())
