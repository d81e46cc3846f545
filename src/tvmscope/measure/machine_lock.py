"""Allows one measurement at a time on a machine: two at once would disturb each other.

Timing and profiling are exclusive. One command may load and compile while another measures.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from tvmscope.messages import Text, msg


@contextmanager
def alone(note: Callable[[Text], object]) -> Iterator[None]:
    """Wait until no other process of this user measures; the system releases the lock of a process
    that dies. If no lock can be made, measure anyway."""
    try:
        path = Path(platformdirs.user_cache_dir("tvmscope"))
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / "measuring.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # a read-only home must not prevent measuring
        yield
        return
    try:
        _take(descriptor, note)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, note: Callable[[Text], object]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(msg("another tvmscope command is measuring on this machine: this one waits"))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return
