"""Watches a worker during a request: its memory, the machine's, and the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from tvmscope.measure.confinement import Confinement, status_bytes
from tvmscope.measure.process_exit import DeathKind
from tvmscope.messages import Bytes, Text, msg

LOOK_S = 0.1
_LEAST_FREE = 0.03
"""The share of the machine's memory that must stay free for the parent and other processes."""
_LOOKS_PER_DISK = 5
_LEAST_DISK_BYTES = 64 << 20
"""The disk space that must stay free for the remaining rows."""


class Watch:
    """Decides when a worker must be ended. It costs nothing without limits."""

    def __init__(self, pid: int, limits: Confinement) -> None:
        self._pid = pid
        self._limits = limits
        self._start_bytes = (_own_bytes(pid) or 0) if limits.server is not None else 0
        self._looks = 0

    @property
    def looks(self) -> bool:
        """Whether there is anything to check."""
        return self._limits.memory_bytes is not None or self._limits.disk_bytes is not None

    def shortage(self, need_bytes: int) -> Text | None:
        """Say why a need could not be met; None if nothing is limited."""
        limit = self._limits.memory_bytes
        if limit is None:
            return None
        free = min(limit, machine_bytes()[1])
        if need_bytes <= free:
            return None
        return msg(
            "needs at least {need} of memory; {free} can be had",
            need=Bytes(need_bytes),
            free=Bytes(free),
        )

    def trouble(self) -> tuple[DeathKind, Text] | None:
        """Say why the worker must be ended; None if it may continue."""
        self._looks += 1
        return self._memory() or (self._disk() if self._looks % _LOOKS_PER_DISK == 1 else None)

    def _memory(self) -> tuple[DeathKind, Text] | None:
        limit = self._limits.memory_bytes
        if limit is None:
            return None
        # the memory at the fork is shared by all of them
        takes = [(_own_bytes(pid) or 0) - self._start_bytes for pid in family(self._pid)]
        used = sum(max(0, own) for own in takes)
        if used > limit:
            return "memory", msg(
                "took {used} of memory; the limit is {limit}", used=Bytes(used), limit=Bytes(limit)
            )
        total, free = machine_bytes()
        if free < _LEAST_FREE * total and used > free:
            return "memory", msg(
                "ended with {used} of memory taken: the machine has {free} left",
                used=Bytes(used),
                free=Bytes(free),
            )
        return None

    def _disk(self) -> tuple[DeathKind, Text] | None:
        limit, folder = self._limits.disk_bytes, self._limits.scratch
        if limit is None or folder is None:
            return None
        used, free = folder_bytes(folder), shutil.disk_usage(folder).free
        if used > limit:
            return "disk", msg(
                "wrote {used} of files; the limit is {limit}", used=Bytes(used), limit=Bytes(limit)
            )
        if free < _LEAST_DISK_BYTES:
            return "disk", msg("filled the disk: {free} left", free=Bytes(free))
        return None


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found, fresh = [pid], [pid]
    while fresh:
        fresh = [child for parent in fresh for child in _children(parent)]
        found += fresh
    return found


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder; vanished files do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def machine_bytes() -> tuple[int, int]:
    """Return the machine's memory, and the part that processes can still take."""
    text = Path("/proc/meminfo").read_text()
    values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in text.splitlines()}
    return values["MemTotal"], values["MemAvailable"]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:  # it has ended
        return found
    return found


def _own_bytes(pid: int) -> int | None:
    """Return the memory that is not backed by a file, which the kernel cannot reclaim."""
    own = status_bytes("RssAnon", pid)
    return None if own is None else own + (status_bytes("RssShmem", pid) or 0)
