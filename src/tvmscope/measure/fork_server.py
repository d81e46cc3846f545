"""Starts workers from a process that has already imported the heavy libraries.

    parent ── control socket ──> server (one thread, libraries imported) ── fork ──> worker
       └──────────────── the worker's own socket ─────────────────────────────────────┘

The server forks and reaps, and does nothing else. A worker's exit status comes back through its own
pipe. When the parent ends, in any way, the control socket closes: the server exits, and the kernel
kills its workers.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tvmscope import plugins
from tvmscope.errors import RunError
from tvmscope.measure.launch import command, environment
from tvmscope.measure.remote import Remote
from tvmscope.messages import Seconds, msg

_COMMAND = command("tvmscope.measure._fork_server_process")
START_S = 300.0
LOST = -signal.SIGHUP
"""The exit code of a worker whose server is gone: its real status is unknown."""
WORD = struct.Struct("q")
"""A process id, later its wait status."""


class ForkedProcess:
    """A worker of the server, with the interface of `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._code: int | None = None
        first = os.read(status, WORD.size)
        if len(first) < WORD.size:
            os.close(status)
            raise RunError(msg("the fork server ended before it started a worker"))
        (self.pid,) = WORD.unpack(first)

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        return self._code if self._code is not None or not self._ended(0.0) else self._read()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self._code is None and not self._ended(timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return self._code if self._code is not None else self._read()

    def _ended(self, timeout: float | None) -> bool:
        return bool(select.select([self._status], [], [], timeout)[0])

    def _read(self) -> int:
        word = os.read(self._status, WORD.size)
        os.close(self._status)
        whole = len(word) == WORD.size
        code = os.waitstatus_to_exitcode(WORD.unpack(word)[0]) if whole else LOST
        self._code = code
        return code


class ForkServer:
    """A context manager; the server starts with the first worker, and again if it was killed.

    Libraries read `env` when they are imported, so a worker's own settings come too late for them.
    """

    def __init__(self, preload: Remote[[], object], env: Mapping[str, str]) -> None:
        self._preload = preload
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Import everything now, so that the first worker does not wait for it."""
        with self._lock:
            self._started()

    @property
    def pid(self) -> int | None:
        """The server's process id, once it runs."""
        return None if self._process is None else self._process.pid

    def fork(self, connection: socket.socket, log: int, env: Mapping[str, str]) -> ForkedProcess:
        """Fork a worker that serves `connection` and writes to `log`.

        It has this process's current folder and variables, like a spawned one.
        """
        request = pickle.dumps((dict(environment(env)), os.getcwd()))
        for attempt in (1, 2):
            with self._lock:
                control = self._started()
                ours, theirs = os.pipe()
                try:
                    socket.send_fds(control, [request], [connection.fileno(), log, theirs])
                except OSError:
                    os.close(ours)
                    self._end()
                    if attempt == 2:
                        raise
                    continue
                finally:
                    os.close(theirs)
            return ForkedProcess(ours)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the server, and with it all of its workers."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self._end()  # a worker or the kernel killed it
        if self._control is None:
            self._control = self._start()
        return self._control

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [*_COMMAND, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(self._env),
            start_new_session=True,
        )
        theirs.close()
        ours.sendall(pickle.dumps((sys.path, plugins.allowed(), self._preload)))
        ours.settimeout(START_S)
        try:
            said = ours.recv(1 << 16)
            kind, text = pickle.loads(said) if said else ("error", msg("it ended"))
        except TimeoutError:
            kind, text = "error", msg("not ready after {time}", time=Seconds(START_S))
        if kind != "ready":
            ours.close()
            self._end()
            raise RunError(msg("the fork server did not start: {reason}", reason=text))
        ours.settimeout(None)
        return ours

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(3.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def thread_count() -> int:
    """Return the number of threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def settle_threads(limit_s: float = 2.0) -> int:
    """Return the number of threads that stay: some libraries end theirs just after their import."""
    end = time.monotonic() + limit_s
    while (count := thread_count()) > 1 and time.monotonic() < end:
        time.sleep(0.02)
    return count
