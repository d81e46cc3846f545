"""Stores the kernels of trace records next to the database, one file each.

MetaSchedule cannot use a trace without its function; a function is a few kilobytes that many trials
share, so it is not part of their lines.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tvmscope.core.tuning import Params, Trial
from tvmscope.storage.files import write_text_atomic


def place(database: Path, workload: str, params: Params) -> Path:
    """Return the file of a workload's function, lowered with `params` (as TVM's JSON)."""
    text = json.dumps([workload, sorted(params.items())])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return database.parent / "functions" / f"{digest}.json"


def of(database: Path, trial: Trial) -> Path | None:
    """Return the file with a trace record's function, if it was stored."""
    file = place(database, trial.workload, trial.candidate.params)
    return file if trial.candidate.trace is not None and file.is_file() else None


def keep(database: Path, trial: Trial, function: str) -> None:
    """Store the function of a trace record, unless it exists."""
    file = place(database, trial.workload, trial.candidate.params)
    if trial.candidate.trace is not None and not file.exists():
        write_text_atomic(file, function)


def carry(source: Path, database: Path, trial: Trial) -> None:
    """Copy a record's function to another database."""
    file = of(source, trial)
    if file is not None:
        keep(database, trial, file.read_text())
