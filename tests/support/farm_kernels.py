"""Kernels for the farm's tests, good and bad, and farms on loopback to run them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from support.command import COMMAND, ENV
from tvmscope.runtime import tvm_compat
from tvmscope.tuning.farm.tracker import summary

SIZE = 1000
ARGS = (((SIZE,), "float32"), ((SIZE,), "float32"))
PATIENCE_S = 60.0


def build(folder: Path) -> dict[str, Path]:
    """Libraries that compute y = 2x + 1, do so after 0.7 s, hang, or die. Run it in a worker."""
    tvm = tvm_compat.import_tvm(torch=False)
    from tvm import te, tirx

    x = te.placeholder((SIZE,), "float32", name="x")

    def calling(*call: Any) -> Any:
        def body(inputs: Any, outputs: Any) -> Any:
            before = tirx.Evaluate(tirx.call_extern("int32", *call))
            i = tirx.Var("i", "int32")
            store = tirx.BufferStore(outputs[0], inputs[0][i] * 2.0 + 1.0, [i])
            return tirx.SeqStmt([before, tirx.For(i, 0, SIZE, tirx.ForKind.SERIAL, store)])

        return te.extern((SIZE,), [x], body, name="y", dtype="float32")

    kinds = {
        "good": te.compute((SIZE,), lambda i: x[i] * 2.0 + 1.0, name="y"),
        "slow": calling("usleep", 700_000),
        "hangs": calling("sleep", 1000),
        "dies": calling("abort"),
    }
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})
    for name, y in kinds.items():
        module = tvm.compile(te.create_prim_func([x, y]), target=target)
        module.export_library(str(folder / f"{name}.so"))
    return {name: folder / f"{name}.so" for name in kinds}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Farm:
    """A tracker and servers, each started by the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = ("127.0.0.1", self.port)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("tracker", "--port", str(self.port), "--port-end", str(self.port))
        eventually(lambda: listening(self.port))

    def _start(self, *args: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.processes)}-{args[0]}.txt").open("wb")
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        with log:
            process = subprocess.Popen(
                [COMMAND, "farm", *args], stderr=log, env={**ENV, **cache}, cwd=self.folder
            )
        self.processes.append(process)
        return process

    def server(self, key: str = "board") -> subprocess.Popen[bytes]:
        """Start one more and wait until the tracker knows it."""
        before = self.count(key)
        process = self.start_server(key)
        eventually(lambda: self.count(key) > before)
        return process

    def start_server(self, key: str = "board") -> subprocess.Popen[bytes]:
        port = str(free_port())
        return self._start(
            "server", "--key", key, "--tracker", f"127.0.0.1:{self.port}", "--port", port,
            "--port-end", port, "--threads", "1",
        )  # fmt: skip

    def count(self, key: str) -> int:
        return summary(self.address).count(key)

    def said(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("*.txt")))

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        try:
            for process in self.processes:
                process.wait(20)
        finally:  # where Ctrl-C is ignored, as in a script's background, none may stay
            for process in self.processes:
                process.kill()


@contextmanager
def farm(folder: Path) -> Iterator[Farm]:
    made = Farm(folder)
    try:
        yield made
    finally:
        made.close()


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def eventually(check: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `check` says as soon as it is true."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came")


def session_of(process: subprocess.Popen[bytes]) -> int | None:
    """The process group of a server that is measuring now."""
    family = psutil.Process(process.pid).children()
    return next((child.pid for child in family if child.children()), None)


def kill_group(group: int) -> None:
    os.killpg(group, signal.SIGKILL)
