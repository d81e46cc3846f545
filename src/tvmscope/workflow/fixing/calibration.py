"""How good predictions were on this machine: a line of JSON per tried fix."""

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
    """Add a finished attempt; a folder that cannot be written costs the line and nothing else."""
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
        return  # the attempt is in its session all the same


def history() -> tuple[Attempt, ...]:
    """Every attempt of every session so far; lines that cannot be read are passed over."""
    try:
        lines = file().read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        try:
            found.append(decode(Attempt, json.loads(line)))
        except (json.JSONDecodeError, SchemaError):
            continue  # cut off while it was written, or of another version
    return tuple(found)
