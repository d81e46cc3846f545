"""The tuning database: append-only files of JSON lines for any number of processes, which a killed
writer cannot damage."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tvmscope.core.target import Target
from tvmscope.core.tuning import Trial
from tvmscope.errors import SchemaError, TuneError
from tvmscope.messages import Text, msg
from tvmscope.tuning.records import functions
from tvmscope.tuning.records.lines import from_line, glimpse, to_line, workload_key
from tvmscope.tuning.records.validity import outdated

SHIPPED = Path(__file__).parent / "shipped"
"""The records that come with the package."""
LINE_LIMIT = 16 << 20
"""Longer lines are foreign; the limit bounds the memory for a file without newlines."""
_CHUNK = 1 << 20

OnReject = Callable[[int, Text], None]
"""Receives the number of a line that holds no record, and the reason."""


class Line(NamedTuple):
    """A line of a file; `text` is None if it is too long to be a record."""

    number: int
    offset: int
    text: bytes | None
    end: int
    """The offset of the next line."""


def scan(stream: BinaryIO) -> Iterator[Line]:
    """Yield every line from here on, in bounded memory; blank ones are skipped."""
    offset, number = stream.tell(), 0
    while text := stream.readline(LINE_LIMIT):
        number += 1
        size, piece = len(text), text
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(LINE_LIMIT)
            size += len(piece)
        if text.strip():
            yield Line(number, offset, text if size == len(text) else None, offset + size)
        offset += size


def read(path: Path, on_reject: OnReject | None = None) -> Iterator[Trial]:
    """Yield every trial of a file; `on_reject` receives lines without one."""
    with path.open("rb") as stream:
        for line in scan(stream):
            try:
                yield _parse(line)
            except SchemaError as e:
                if on_reject:
                    on_reject(line.number, e.message)


def _parse(line: Line) -> Trial:
    if line.text is None:
        raise SchemaError(msg("longer than {limit} MiB", limit=LINE_LIMIT >> 20))
    return from_line(line.text)


def append(path: Path, *trials: Trial) -> None:
    """Append trials: all of them or, if the disk is full, none.

    The lock excludes other writers, and because of the single `write` a killed writer can damage
    only its last line; the next writer then starts a new line.
    """
    data = b"".join(map(to_line, trials))
    try:
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = b"\n" + data if torn else data
            _write(descriptor, data, size)
    except OSError as e:
        raise TuneError(
            msg("{path}: the record could not be written: {reason}", path=path, reason=str(e))
        ) from e


def _write(descriptor: int, data: bytes, size: int) -> None:
    try:
        done = os.write(descriptor, data)
        if done < len(data):
            raise OSError(f"only {done} of {len(data)} bytes fit")
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):  # the line stays incomplete, which readers skip
            os.ftruncate(descriptor, size)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Yield the file, open for appending, with no other writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_current(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # which unlocks it


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the file is still the one at `path`; it may have been replaced (pruned) meanwhile."""
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (now.st_dev, now.st_ino)


def replace_with(path: Path, keep: Iterable[bytes], *, backup: Path | None) -> None:
    """Replace a file's lines; no writer can interfere, and none loses its record.

    `keep` is consumed under the lock, so that it may read the file itself.
    """
    with _locked(path):
        if backup is not None:
            shutil.copy2(path, backup)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with scratch.open("wb") as stream:
                stream.writelines(keep)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)


class Database:
    """A file of trials and the offsets of each workload's lines.

    The file is scanned once; a later query reads only what was added since, also by other
    processes. A missing or unreadable file is an empty database with `trouble`.
    """

    def __init__(self, path: Path, *, name: str | None = None) -> None:
        self.path = path
        self.name = name or str(path)
        self.trouble: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._file: tuple[int, int] | None = None
        self._end = 0
        self._all: dict[bytes, array[int]] = {}
        self._validated: dict[bytes, array[int]] = {}
        self.rejected: Counter[Text] = Counter()
        """Lines that hold no record, by the reason."""

    def append(self, trial: Trial, *, function: str | None = None) -> None:
        """Add a trial; `function` is the kernel before scheduling (TVM's JSON), which the export of
        a trace needs."""
        if function is not None:
            functions.keep(self.path, trial, function)
        append(self.path, trial)

    def workloads(self) -> list[str]:
        """Return the workloads that have a record."""
        with self._stream():
            return [json.loads(key) for key in self._all]

    def trials(self, workload: str | None = None, *, validated: bool = False) -> Iterator[Trial]:
        """Yield the trials of one workload or of all, in the file's order; or the validated."""
        with self._stream() as stream:
            if stream is None:
                return
            index = self._validated if validated else self._all
            keys = list(index) if workload is None else [workload_key(workload)]
            offsets = sorted(o for key in keys for o in index.get(key, ()))
            for offset in offsets:
                stream.seek(offset)
                try:
                    yield from_line(stream.readline(LINE_LIMIT))
                except SchemaError as e:  # its ends looked right, its inside does not
                    self.rejected[e.message] += 1

    def tried(
        self,
        workload: str,
        target: Target,
        threads: int,
        *,
        tvm: str | None = None,
        cpu: str | None = None,
    ) -> set[str]:
        """Return the ids of candidates that a search has measured (or tried to) for this target."""
        return {
            trial.candidate.id
            for trial in self.trials(workload)
            if trial.stage == "search"
            and trial.threads == threads
            and same_target(trial.target, target)
            and tvm in (None, trial.tvm)
            and cpu in (None, trial.cpu)
            and outdated(trial) is None
        }

    @contextlib.contextmanager
    def _stream(self) -> Iterator[BinaryIO | None]:
        """Yield the file with its index up to date; None if there is none to read."""
        try:
            stream = self.path.open("rb", buffering=_CHUNK)
        except OSError as e:
            self._forget()
            self.trouble = f"{self.name}: {e.strerror or e}"
            yield None
            return
        with stream:
            self.trouble = None
            self._refresh(stream)
            yield stream

    def _refresh(self, stream: BinaryIO) -> None:
        state = os.fstat(stream.fileno())
        if self._file != (state.st_dev, state.st_ino) or state.st_size < self._end:
            self._forget()
            self._file = (state.st_dev, state.st_ino)
        stream.seek(self._end)
        for line in scan(stream):
            seen = glimpse(line.text) if line.text else None
            if seen is None:
                try:
                    trial = _parse(line)
                except SchemaError as e:
                    if line.text and not line.text.endswith(b"\n"):
                        return  # perhaps being written just now: looked at again next time
                    self.rejected[e.message] += 1
                    self._end = line.end
                    continue
                key, validated = workload_key(trial.workload), trial.stage == "validated"
            else:
                key, validated = seen
            self._all.setdefault(key, array("Q")).append(line.offset)
            if validated:
                self._validated.setdefault(key, array("Q")).append(line.offset)
            self._end = line.end


def same_target(a: Target, b: Target) -> bool:
    """Whether code for one is code for the other; the number of cores does not matter."""
    return (a.kind, a.arch, a.triple, set(a.features)) == (
        b.kind,
        b.arch,
        b.triple,
        set(b.features),
    )
