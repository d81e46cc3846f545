"""Records how good predictions were on this machine: a line of JSON per attempted fix."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tvmscope.core.diagnosis.findings import Attempt
from tvmscope.core.session import Session
from tvmscope.errors import SchemaError
from tvmscope.stages.places import data_folder
from tvmscope.storage.codec import decode, encode


def file() -> Path:
    """Return the file of these lines."""
    return data_folder() / "calibration.jsonl"


def record(session: Session, attempt: Attempt) -> None:
    """Add a finished attempt; if the folder cannot be written, only the line is lost."""
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": session.model.name,
        "digest": session.model.digest,
        "cpu": session.environment.cpu,
        **encode(attempt),
    }
    try:
        file().parent.mkdir(parents=True, exist_ok=True)
        with file().open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, allow_nan=False) + "\n")
    except OSError:
        return  # the attempt is still in its session


def history() -> tuple[Attempt, ...]:
    """Return every attempt of every session so far; unreadable lines are skipped."""
    try:
        lines = file().read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        try:
            found.append(decode(Attempt, json.loads(line)))
        except (json.JSONDecodeError, SchemaError):
            continue  # incomplete, or of another version
    return tuple(found)
