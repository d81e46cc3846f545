"""What foreign code does to a worker: functions that a worker is asked to run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path


def nothing() -> None:
    """A preload that imports nothing."""


def import_marker() -> None:
    """A preload whose effect can be seen in a worker."""
    sys.modules["preloaded_marker"] = os  # type: ignore[assignment]


def start_thread() -> None:
    """A preload after which a process must not fork."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def has_marker() -> tuple[bool, int]:
    """Whether the preload ran, and how many threads there are."""
    return "preloaded_marker" in sys.modules, threading.active_count()


def environment(name: str) -> str | None:
    return os.environ.get(name)


def places() -> tuple[str, str]:
    """The current folder, and that for temporary files."""
    import tempfile

    return str(Path.cwd()), tempfile.gettempdir()


def oom_score() -> int:
    return int(Path("/proc/self/oom_score_adj").read_text())


def abort() -> None:
    os.abort()


def sleep() -> None:
    time.sleep(600)


def allocate(size_bytes: int) -> int:
    return len(bytearray(size_bytes))


def children_allocate(count: int, size_bytes: int) -> None:
    for _ in range(count):
        if os.fork() == 0:
            kept = bytearray(b"x") * size_bytes
            time.sleep(600)
            os._exit(len(kept) > 0)
    time.sleep(600)


def leave_daemon() -> int:
    """A grandchild in a session of its own, whose parent is gone."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (pid := os.fork()) == 0:
            time.sleep(600)
        os.write(theirs, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(ours, 20))


def fill(name: str) -> None:
    with Path(name).open("wb") as stream:
        while True:
            stream.write(bytes(1 << 20))
            time.sleep(0.001)


def fill_many() -> None:
    for number in range(10_000):
        Path(f"fill-{number}").write_bytes(bytes(1 << 20))
        time.sleep(0.001)


def kill_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def sum_of_file(path: str) -> tuple[float, int]:
    """The sum of an array in a file, and the memory that reading it took."""
    from tvmscope.measure.confinement import status_bytes
    from tvmscope.storage.files import map_npz

    before = status_bytes("RssAnon") or 0
    total = float(map_npz(Path(path))["x"].sum())
    return total, (status_bytes("RssAnon") or 0) - before
