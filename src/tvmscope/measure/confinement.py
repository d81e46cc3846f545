"""The limits of a job's workers and how they are started: one setting for the whole process.

Workers are made deep inside the stages. A suite sets their limits for a whole problem, so that
loading, compiling, verifying and timing are all covered.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvmscope.measure.fork_server import ForkServer

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "1000"
"""The kernel kills a process with this score before any with a lower one."""


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """Limits of all workers that are made under it; None means no limit."""

    deadline: float | None = None
    """The time of `time.monotonic()` after which the job waits for no worker."""
    memory_bytes: int | None = None
    """The memory of a worker with its children, beyond that at its start."""
    disk_bytes: int | None = None
    """The size of the scratch folder, and of the largest file that a worker may write anywhere."""
    scratch: Path | None = None
    """The workers' folder for temporary files, absolute."""
    enter: bool = False
    """Whether it is also their current folder."""
    server: ForkServer | None = None
    """The server that forks workers; None spawns each."""


_current = Confinement()


def current() -> Confinement:
    """Return the limits of workers that are made now."""
    return _current


@contextmanager
def confined(limits: Confinement) -> Iterator[None]:
    """Apply these limits to workers that are made inside."""
    global _current
    before, _current = _current, limits
    try:
        yield
    finally:
        _current = before


def scratch_folder(prefix: str = "tvmscope-") -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, at the location that the current limits set."""
    return tempfile.TemporaryDirectory(
        prefix=prefix, dir=_current.scratch, ignore_cleanup_errors=True
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The part of a confinement that a worker process applies to itself; plain data."""

    memory_bytes: int | None = None
    file_bytes: int | None = None
    scratch: str | None = None
    enter: bool = False

    @classmethod
    def of(cls, limits: Confinement) -> Limits:
        """Return the limits that a worker applies."""
        return cls(
            memory_bytes=limits.memory_bytes,
            file_bytes=limits.disk_bytes,
            scratch=None if limits.scratch is None else str(limits.scratch),
            enter=limits.enter,
        )

    def apply(self) -> None:
        """Limit this process permanently."""
        if self.memory_bytes is not None:
            # An allocation far over the limit fails here with an error; the parent's watch finds
            # the rest. Mapped files count here, but take no memory: therefore twice.
            own = status_bytes("VmData") or 0
            _limit(resource.RLIMIT_DATA, own + 2 * self.memory_bytes)
        if self.file_bytes is not None:
            _limit(resource.RLIMIT_FSIZE, self.file_bytes)
        _limit(resource.RLIMIT_CORE, 0)
        if self.scratch is not None:
            os.environ["TMPDIR"] = self.scratch
            tempfile.tempdir = None  # read the variable again
            if self.enter:
                os.chdir(self.scratch)


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def offer_to_kernel() -> None:
    """Let the kernel kill this process first when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    except OSError:
        return  # another system, or a container that forbids it: then only the watch protects


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends: a stopped process sees no closed pipe."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the request took effect
            os._exit(0)


def status_bytes(field: str, pid: int | str = "self") -> int | None:
    """Return a value of a process's status; None if the system or the process has none."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    line = next((x for x in text.splitlines() if x.startswith(f"{field}:")), None)
    return None if line is None else int(line.split()[1]) * 1024
