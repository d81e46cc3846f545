"""The fork server's side: imports the libraries once, then forks a worker per request."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import pickle
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from tvmscope import plugins
from tvmscope.errors import one_line
from tvmscope.measure import _worker_process
from tvmscope.measure.confinement import die_with_parent
from tvmscope.measure.fork_server import WORD, settle_threads
from tvmscope.messages import msg

_PR_SET_CHILD_SUBREAPER = 36
_FDS = 3


class Server:
    """Has the control socket and a status pipe per living worker."""

    def __init__(self, control: socket.socket, wake: socket.socket) -> None:
        self.control = control
        self.wake = wake
        self.workers: dict[int, int] = {}

    def serve(self) -> None:
        """Fork and reap until the parent closes the socket."""
        while True:
            ready, _, _ = select.select([self.control, self.wake], [], [])
            if self.wake in ready:
                self.wake.recv(4096)
                self.reap()
            if self.control in ready:
                data, fds, _, _ = socket.recv_fds(self.control, 1 << 20, _FDS)
                if not data:
                    return
                self.fork(*pickle.loads(data), *fds)

    def fork(
        self, env: dict[str, str], folder: str, connection: int, log: int, status: int
    ) -> None:
        """Start a worker and report its process id."""
        pid = os.fork()
        if pid == 0:
            self.become_worker(env, folder, connection, log, status)
        os.setpgid(pid, pid)  # here, because the parent may kill the group immediately
        os.close(connection)
        os.close(log)
        self.workers[pid] = status
        with contextlib.suppress(BrokenPipeError):
            os.write(status, WORD.pack(pid))

    def become_worker(
        self, env: dict[str, str], folder: str, connection: int, log: int, status: int
    ) -> None:
        """Run the worker in the forked process; never return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (*self.workers.values(), status):
                os.close(descriptor)  # only the server may have the end that says "ended"
            self.control.close()
            self.wake.close()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            os.environ.update(env)
            os.chdir(folder)
            faulthandler.enable()
            die_with_parent(self.pid)
            _worker_process.attend(Connection(connection))
            code = 0
        except BaseException:  # exits included: the copy must not return into the server's loop
            faulthandler.dump_traceback()
        finally:
            os._exit(code)  # the parent's exit handlers must not run here

    def reap(self) -> None:
        """Report how workers ended; end the processes that they left behind."""
        ended = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if (pipe := self.workers.pop(pid, None)) is not None:
                    ended = True
                    with contextlib.suppress(BrokenPipeError):
                        os.write(pipe, WORD.pack(status))
                    os.close(pipe)
        if ended:
            self.end_orphans()

    def end_orphans(self) -> None:
        """End orphans, which have become our children; those of living groups may stay."""
        for task in Path("/proc/self/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    if pid not in self.workers and os.getpgid(pid) not in self.workers:
                        os.kill(pid, signal.SIGKILL)

    pid: int = 0


def main(descriptor: int) -> None:
    """Import the requested libraries, then serve."""
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    path, with_plugins, preload = pickle.loads(control.recv(1 << 20))
    sys.path.extend(p for p in path if p not in sys.path)
    plugins.allow(with_plugins)
    try:
        preload.resolve()()
    except Exception as e:  # the parent reports a library that does not load
        control.send(pickle.dumps(("error", one_line(e))))
        return
    if (threads := settle_threads()) > 1:
        said = msg("it has {count} threads after its imports", count=threads)
        control.send(pickle.dumps(("error", said)))
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared with the workers
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = Server(control, ours)
    server.pid = os.getpid()
    control.send(pickle.dumps(("ready", "")))
    server.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
