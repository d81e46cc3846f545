"""Runs the farm: TVM's RPC tracker and servers, restarted when they end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from tvmscope.errors import RunError, UsageError
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import _, msg
from tvmscope.stages.places import cache_folder
from tvmscope.tuning.farm import rpc_processes, tracker
from tvmscope.tuning.farm.tracker import Address, Device, Summary

LOOPBACK = "127.0.0.1"
_WAIT = here(rpc_processes.wait)
_START_TRACKER, _START_SERVER = here(rpc_processes.start_tracker), here(rpc_processes.start_server)
_SHORT_S, _SHORT_LIVES = 10.0, 3
"""This many short lives in a row mean that it cannot work."""
_PAUSE_S = 1.0

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The address to listen on: the first free port of a range."""

    host: str = LOOPBACK
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last < 65536:
            raise UsageError(
                msg(
                    "ports {first} to {last}: give a range within 1 to 65535",
                    first=self.first,
                    last=self.last,
                )
            )


def log_file(name: str) -> Path:
    """Return the log file of a farm process."""
    safe = re.sub(r"[^\w.-]+", "_", name)
    return cache_folder() / "logs" / f"farm-{safe}-{os.getpid()}.log"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False  # a name: who knows where it leads


def run_tracker(ports: Ports, say: Say) -> None:
    """Run a tracker until it is interrupted."""
    _warn(ports.host, say)

    def start(worker: Worker) -> int:
        return worker.call(_START_TRACKER, ports.host, ports.first, ports.last + 1)

    _keep_running("tracker", start, ports.host, {}, say)


def run_server(
    ports: Ports,
    say: Say,
    *,
    address: Address,
    key: str,
    threads: int | None = None,
    public_host: str | None = None,
) -> None:
    """Run a server until it is interrupted; restart it whenever it ends.

    It waits for a tracker that is missing or goes away.
    """
    if not re.fullmatch(r"[\w.-]+", key):
        raise UsageError(msg("key '{key}': use letters, digits, '.', '_' and '-'", key=key))
    if is_loopback(ports.host) and not is_loopback(address[0]) and public_host is None:
        raise UsageError(
            msg(
                "the tracker is at {host}, but the server would listen on {own} only, where "
                "its clients cannot reach it; give --host (0.0.0.0 for every network)",
                host=address[0],
                own=ports.host,
            )
        )
    _warn(ports.host, say)
    count = threads or cpu_features.usable_cores()
    env = {"TVM_NUM_THREADS": str(count), "OMP_NUM_THREADS": str(count), "TVM_BIND_THREADS": "0"}
    say(_("threads: {n}").format(n=count))
    device = _this_device(count)

    def start(worker: Worker) -> int:
        place = (ports.host, ports.first, ports.last + 1)
        return worker.call(_START_SERVER, *place, key, address, public_host, device)

    _keep_running(f"server-{key}", start, ports.host, env, say)


def _this_device(threads: int) -> Device:
    # asked here, not in the server: a process that has talked to CUDA must not fork
    gpu = cuda_device.find()
    return Device(
        cpu=cpu_features.model_name(),
        threads=threads,
        features=tuple(sorted(cpu_features.reported())),
        gpu=gpu.name if gpu else None,
        gpu_arch=gpu.arch if gpu else None,
    )


def _warn(host: str, say: Say) -> None:
    if not is_loopback(host):
        say(
            _(
                "warning: {host} can be reached from other machines, and TVM's RPC has no "
                "authentication: whoever reaches this port can run any code as this user. Use it "
                "in a trusted network only, behind a firewall."
            ).format(host=host)
        )


def _keep_running(
    name: str, start: Callable[[Worker], int], host: str, env: dict[str, str], say: Say
) -> None:
    log, short = log_file(name), 0
    say(_("log: {file}").format(file=log))
    while True:
        began = time.monotonic()
        with Worker(name, env=env, timeout_s=float("inf"), log_path=log) as worker:
            port = start(worker)
            say(_("{name} listens on {host}:{port}").format(
                name=name, host=host, port=port
            ))  # fmt: skip
            try:
                worker.call(_WAIT)
            except WorkerDied as e:
                say(_("{name} ended ({why}); starting it again").format(name=name, why=e.reason))
        short = short + 1 if time.monotonic() - began < _SHORT_S else 0
        if short >= _SHORT_LIVES:
            raise RunError(
                msg(
                    "{name} ended {short} times in a row at once; see {log}",
                    name=name,
                    short=short,
                    log=log,
                )
            )
        time.sleep(_PAUSE_S)


def status(address: Address, *, timeout_s: float) -> Summary:
    """Who is there."""
    return tracker.summary(address, timeout_s=timeout_s)
