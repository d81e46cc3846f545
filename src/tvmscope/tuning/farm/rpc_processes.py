"""Runs TVM's RPC tracker and server inside a worker process, which ends when they do.

TVM's own commands start them in a grandchild process that stays when its listening thread has died.
Here the thread is watched, so that the starter of the worker learns of its end.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from typing import Any

from tvmscope.compiler.host import llvm_host
from tvmscope.errors import RunError
from tvmscope.messages import msg
from tvmscope.runtime import tvm_compat
from tvmscope.storage.codec import encode
from tvmscope.tuning.farm.remote_kernel import DESCRIBE
from tvmscope.tuning.farm.tracker import Address, Device

_running: Any = None


def start_tracker(host: str, port: int, port_end: int) -> int:
    """Start it in this process; return its port."""
    tvm_compat.import_tvm(torch=False)
    from tvm.rpc.tracker import PopenTrackerServerState

    return _started(PopenTrackerServerState, host, port, port_end)


def start_server(
    host: str,
    port: int,
    port_end: int,
    key: str,
    tracker: Address,
    address: str | None = None,
    device: Device | None = None,
) -> int:
    """Start it in this process; return its port. The tracker announces `address`."""
    tvm_compat.import_tvm(torch=False)
    import tvm

    tvm_compat.survive_crashed_sessions()
    if device is not None:
        # the session's processes are forked from this one and so also have the function
        told = json.dumps(encode(_complete(device)))
        tvm.register_global_func(DESCRIBE, lambda: told, override=True)
    from tvm.rpc.server import PopenRPCServerState

    more = {"tracker_addr": tracker, "key": key, "custom_addr": address}
    return _started(PopenRPCServerState, host, port, port_end, **more)


def _complete(device: Device) -> Device:
    llvm_cpu, triple = llvm_host()
    return replace(device, llvm_cpu=llvm_cpu, triple=triple)


def _started(kind: Any, host: str, port: int, port_end: int, **more: Any) -> int:
    global _running
    logging.basicConfig(level=logging.INFO)
    try:
        _running = kind(host, port, port_end, **more)
    except (OSError, ValueError) as e:
        raise RunError(
            msg(
                "no port of {host}:{port} to {last} can be used: {reason}",
                host=host,
                port=port,
                last=port_end - 1,
                reason=str(e),
            )
        ) from e
    return int(_running.port)


def wait() -> None:
    """Wait until it stops by itself, which is a failure."""
    _running.thread.join()
    os._exit(1)  # not by return: forked sessions must not continue without it
