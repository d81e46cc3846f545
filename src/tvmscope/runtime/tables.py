"""Reads the JSON tables of an artifact, and explains how to repair a damaged one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from tvmscope.errors import SchemaError, one_line
from tvmscope.messages import msg
from tvmscope.storage.codec import decode

T = TypeVar("T")


def read_table(row: type[T], file: Path) -> tuple[T, ...]:
    """Return the rows of a JSON file; none if the file is missing."""
    if not file.is_file():
        return ()
    try:
        return tuple(decode(row, item) for item in json.loads(file.read_text("utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError, SchemaError, TypeError) as e:
        raise damaged(file, e) from e


def damaged(file: Path, error: Exception) -> SchemaError:
    """Make the error for a file of an artifact that cannot be read."""
    return SchemaError(
        msg(
            "{file} is damaged ({reason}); compile the model again",
            file=file,
            reason=one_line(error),
        )
    )
