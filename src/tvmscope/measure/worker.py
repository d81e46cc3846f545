"""A separate process for code that may crash, hang or exhaust memory, and functions to time it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from tvmscope import errors, plugins
from tvmscope.errors import RunError, TvmscopeError, one_line
from tvmscope.machine import cuda_device
from tvmscope.measure import confinement
from tvmscope.measure.child_progress import Listener
from tvmscope.measure.confinement import Limits
from tvmscope.measure.launch import command, environment
from tvmscope.measure.process_exit import DeathKind, describe_exit, until_dump
from tvmscope.measure.remote import Remote
from tvmscope.measure.watch import LOOK_S, Watch
from tvmscope.messages import Text, msg

P = ParamSpec("P")
R = TypeVar("R")
Request = TypeVar("Request")

_COMMAND = command("tvmscope.measure._worker_process")
_POLL_S = 0.5
_EXIT_S = 3.0
_TAIL_BYTES = 8192


class WorkerDied(RunError):
    """The worker process ended; `kind` says how and `reason` describes it."""

    def __init__(self, name: str, kind: DeathKind, reason: Text) -> None:
        super().__init__(msg("{name}: {reason}", name=name, reason=reason))
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True)
class LoadInfo:
    """The worker's report about a runner that it has loaded."""

    settings: dict[str, str]
    load_s: float
    has_device_timer: bool


class Process(Protocol):
    """The process interface that a worker needs; `subprocess.Popen` and `ForkedProcess` have it."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Worker:
    """A child process that runs functions by reference and has one loaded runner.

    Linux kills the child when the thread that made the worker ends, so make it in a thread that
    outlives it. No answer for `timeout_s` counts as a hang. The limits of `confinement.current()`
    apply to it; `fork=False` spawns it even if there is a fork server (CUDA does not survive a
    fork). If a GPU was chosen (`machine.cuda_device.chosen`), it sees that one alone.
    """

    def __init__(
        self,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 600.0,
        log_path: Path | None = None,
        fork: bool = True,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.on_step: Listener | None = None
        """Receives the progress of a call, if the called function reports it."""
        self._paused = False
        self._death: WorkerDied | None = None
        self._ended = False
        self._log: IO[bytes] = _open_log(log_path)
        self._log_start = self._log.seek(0, os.SEEK_END)  # several workers may share a file
        self._limits = limits = confinement.current()
        ours, theirs = socket.socketpair()
        try:
            given = {**cuda_device.environment(), **(env or {})}
            self._process = self._start(theirs, given, fork=fork)
        except OSError as e:
            ours.close()
            self._log.close()
            raise RunError(
                msg("{name}: no process could be started: {reason}", name=name, reason=str(e))
            ) from e
        finally:
            theirs.close()
        self._watch = Watch(self._process.pid, limits)
        self._connection = Connection(ours.detach())
        with contextlib.suppress(OSError):  # a child that has ended is found by the first request
            self._connection.send((sys.path, plugins.allowed(), Limits.of(limits)))

    def _start(self, connection: socket.socket, env: Mapping[str, str], *, fork: bool) -> Process:
        if fork and self._limits.server is not None:
            return self._limits.server.fork(connection, self._log.fileno(), env)
        return subprocess.Popen(
            [*_COMMAND, str(connection.fileno()), str(os.getpid())],
            pass_fds=(connection.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=environment(env),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False after it was ended, or was found dead."""
        return not self._ended

    def must_fit(self, need_bytes: int) -> None:
        """End it, as out of memory, if it could not allocate this much; before it tries."""
        if trouble := self._watch.shortage(need_bytes):
            raise self._gone("memory", trouble)

    def call(self, function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
        """Run a function in the worker and return its result."""
        result: R = self._ask("call", function, args, kw)
        return result

    def load(self, function: Remote[[Request], Any], request: Request) -> LoadInfo:
        """Make a runner with `function(request)` and keep it."""
        return LoadInfo(*self._ask("load", function, request))

    def apply(self, function: Remote[Concatenate[Any, P], R], *args: P.args, **kw: P.kwargs) -> R:
        """Run `function(runner, *args)` on the loaded runner and return its result."""
        result: R = self._ask("apply", function, args, kw)
        return result

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        """Return `n` values in seconds, each the mean of `loops` runs; `cold` clears the caches."""
        return list(self._ask("time", n, loops, cold))

    def time_device(self, n: int) -> list[float]:
        """Return `n` values in seconds by the device's own clock."""
        return list(self._ask("time_device", n))

    def outputs(self, path: Path) -> None:
        """Run once and write the outputs by name into an npz file."""
        self._ask("outputs", str(path))

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of resident memory until now; None if the system does not report it."""
        peak: int | None = self._ask("peak_memory_bytes")
        return peak

    def cores_used(self) -> float | None:
        """Return how many cores were busy on average in the timed runs; spinning threads that wait
        count, too."""
        cores: float | None = self._ask("cores")
        return cores

    def pause(self) -> None:
        """Stop the process and its children: an idle thread pool would spin during other runs."""
        self._signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let the process continue."""
        self._signal(signal.SIGCONT)
        self._paused = False

    def close(self) -> None:
        """End it: politely first, so that libraries remove their temporary files."""
        if not self._ended:
            self.resume()
            self._connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_S)
        self.kill()

    def kill(self) -> None:
        """End it and its children at once; safe to call twice."""
        if self._ended:
            return
        self._signal(signal.SIGKILL)
        self._ended = True
        self._process.wait()
        self._connection.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._ended:  # the process id may belong to another process by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left to signal
            os.killpg(self._process.pid, number)

    def _ask(self, name: str, *args: Any) -> Any:
        if self._death is not None:
            raise self._death
        if self._paused:
            self.resume()
        try:
            self._connection.send((name, args))
            kind, value = self._answer()
        except (EOFError, OSError):
            raise self._died() from None
        except (ImportError, AttributeError, pickle.UnpicklingError) as e:
            raise RunError(
                msg(
                    "{name}: the result of '{request}' cannot be read: {reason}",
                    name=self.name,
                    request=name,
                    reason=str(e),
                )
            ) from e
        except (KeyboardInterrupt, SystemExit):
            self._gone("exit", msg("interrupted"))  # an answer may still arrive: never reuse it
            raise
        if kind == "memory":
            raise self._gone("memory", msg("out of memory: {reason}", reason=value))
        if kind == "error":
            raise _as_error(*value)
        return value

    def _answer(self) -> tuple[str, Any]:
        """Return the next answer; each heartbeat restarts the wait."""
        deadline = time.monotonic() + self.timeout_s
        pause_s = LOOK_S if self._watch.looks else _POLL_S
        while True:
            left_s = self._left_s(deadline)
            if self._connection.poll(max(0.0, min(pause_s, left_s))):
                kind, value = self._connection.recv()
                if kind != "alive":
                    return kind, value
                if value is not None and self.on_step is not None:
                    self.on_step(value)
                deadline = time.monotonic() + self.timeout_s
            elif self._process.poll() is not None and not self._connection.poll(0):
                raise EOFError  # a grandchild may keep the socket open
            elif left_s <= 0:
                raise self._out_of_time()
            elif self._watch.looks and (trouble := self._watch.trouble()):
                raise self._gone(*trouble)

    def _left_s(self, deadline: float) -> float:
        whole = self._limits.deadline
        return (deadline if whole is None else min(deadline, whole)) - time.monotonic()

    def _out_of_time(self) -> WorkerDied:
        whole = self._limits.deadline
        if whole is not None and time.monotonic() >= whole:
            return self._gone("time", msg("the time limit is over"))
        return self._gone("hang", msg("did not answer for {timeout:g} s", timeout=self.timeout_s))

    def _died(self) -> WorkerDied:
        """Find out how a process that closed its connection ended."""
        try:
            code = self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return self._gone("hang", msg("closed its connection but did not exit"))
        kind, reason = describe_exit(code, tail := self._tail())
        last = next((line for line in reversed(tail) if line), None)
        if last:
            reason = msg("{reason}: {last}", reason=reason, last=last)
        return self._gone(kind, reason)

    def _tail(self) -> list[str]:
        """Return the last lines of the output, up to the start of Python's crash dump."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log_start, size - _TAIL_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return [one_line(RuntimeError(x)) if x.strip() else "" for x in until_dump(lines)]

    def _gone(self, kind: DeathKind, reason: Text) -> WorkerDied:
        self._death = WorkerDied(self.name, kind, reason)
        self.kill()
        return self._death


def run_isolated(function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
    """Run one function in a separate process and return its result."""
    with Worker(str(function)) as worker:
        return worker.call(function, *args, **kw)


def run_within(timeout_s: float, function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
    """Do the same with a separate time limit."""
    with Worker(str(function), timeout_s=timeout_s) as worker:
        return worker.call(function, *args, **kw)


def _as_error(name: str, text: Text) -> TvmscopeError:
    kind: type[TvmscopeError] = getattr(errors, name)
    return kind(text)


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        return tempfile.TemporaryFile()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab+")
