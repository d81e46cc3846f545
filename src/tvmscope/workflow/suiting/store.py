"""A suite's folder: one line per finished problem, written at once, read again by a rerun."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tvmscope.core.suite import SuiteRow, from_line, to_line
from tvmscope.errors import SchemaError, UsageError, one_line
from tvmscope.messages import msg

RESULTS = "results.jsonl"
_LOCK = ".lock"
_SCRATCH = ".scratch"
_SESSIONS = "sessions"


@dataclass
class Store:
    """The rows of a suite's folder; the latest line of a problem counts."""

    folder: Path
    rows: dict[str, SuiteRow] = field(default_factory=dict)

    @property
    def scratch(self) -> Path:
        """The folder that the current problem may fill; removed after it."""
        return self.folder / _SCRATCH

    def session_folder(self, name: str) -> Path:
        """Return the folder of a problem's session; any name gives a folder inside the suite's."""
        safe = re.sub(r"[^\w.+/-]+", "_", name).strip("/")
        parts = [part for part in safe.split("/") if part not in ("", ".", "..")]
        short = "/".join(part[:100] for part in parts[-4:])
        if short != name:
            short = f"{short or 'problem'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return self.folder / _SESSIONS / short

    def append(self, row: SuiteRow) -> None:
        """Add a row; it is on the disk when this returns."""
        self.rows[row.problem] = row
        line = to_line(row) + "\n"
        with (self.folder / RESULTS).open("ab") as stream:
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())

    def clear_scratch(self) -> None:
        """Remove the files of the last problem, however it ended."""
        shutil.rmtree(self.scratch, ignore_errors=True)


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """Yield the store in a folder, made if needed; no other process may use it meanwhile."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UsageError(
                msg(
                    "another suite writes into {folder}; wait for it, or give another --output",
                    folder=folder,
                )
            ) from e
        store = Store(folder)
        store.clear_scratch()
        _drop_unfinished_line(folder / RESULTS)
        store.rows = {row.problem: row for row in read(folder)}
        yield store
        store.clear_scratch()


def read(folder: Path) -> list[SuiteRow]:
    """Return the rows of a suite's folder or results file, one per problem."""
    file = folder / RESULTS if folder.is_dir() else folder
    rows: dict[str, SuiteRow] = {}
    if not file.is_file():
        return []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = from_line(line)
        except (ValueError, SchemaError) as e:
            raise SchemaError(
                msg(
                    "{file}, line {number}, is no row of a suite: {reason}",
                    file=file,
                    number=number,
                    reason=one_line(e),
                )
            ) from e
        rows[row.problem] = row
    return list(rows.values())


def _drop_unfinished_line(file: Path) -> None:
    """Remove the incomplete line that a killed process leaves."""
    if not file.is_file():
        return
    data = file.read_bytes()
    if data and not data.endswith(b"\n"):
        with file.open("r+b") as stream:
            stream.truncate(data.rfind(b"\n") + 1)


def read_all(places: Iterable[Path]) -> list[SuiteRow]:
    """Return the rows of several suites, such as the shards of one."""
    found: list[SuiteRow] = []
    for place in places:
        rows = read(place)
        if not rows:
            raise UsageError(msg("{place} holds no rows of a suite", place=place))
        found += rows
    return found
