"""Runs `tvmscope` commands in processes that are forked from one that has imported it already.

Most of a short command's time is Python's start and imports. A forked process has an exit code,
streams, a folder and an end of its own, as the installed command has; it only skips the imports.
Its workers come from a fork server that serves all commands, for the same reason. This file runs
as the server's main program; `support.command` is its client.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import socket
import sys

PRELOADED = ("tvmscope.cli", "tvmscope.workflow", "tvmscope.stages", "tvmscope.report")


def preload() -> None:
    """Import what commands import; none of it starts threads or imports TVM or torch."""
    for name in PRELOADED:
        package = importlib.import_module(name)
        for info in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(info.name)


def started_workers() -> object:
    """A fork server for the workers of all commands, as `tvmscope suite` has one for its problems.

    It is this process's child: a command, which is forked from here, must not wait for it.
    """
    from tvmscope.machine.cpu_features import usable_cores
    from tvmscope.stages.preload import fork_server

    server = fork_server(usable_cores())
    server.start()
    server._process = None
    return server


def serve(connection: socket.socket) -> None:
    """Answer each request with the process id, then with how the process ended."""
    workers = None
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(connection, 1 << 16, 2)
        if not message:
            return
        request = json.loads(message)
        workers = workers or started_workers()
        child = os.fork()
        if child == 0:
            connection.close()
            become(request, descriptors, workers)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(json.dumps(child).encode())
        _, status = os.waitpid(child, 0)
        connection.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, object], descriptors: list[int], workers: object) -> None:
    """Be the command; does not return."""
    from tvmscope.cli.main import main
    from tvmscope.measure import confinement

    for number, descriptor in zip((1, 2), descriptors, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(str(request["cwd"]))
    sys.argv[1:] = request["args"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with confinement.confined(confinement.Confinement(server=workers)):
        sys.exit(main())


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, which the installed command does not see
    preload()
    with socket.socket(fileno=int(sys.argv.pop())) as client:
        serve(client)
