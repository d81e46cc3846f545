"""How many measurements per minute a farm makes with one, two and three servers, on loopback.

    python benchmarks/farm.py [--measurements 24] [--device-ms 200]

The servers share this machine, so the kernel SIMULATES device time: it sleeps for a fixed time and
computes next to nothing. What is measured is how well the farm keeps its devices busy.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.measure.remote import Remote, here
from tvmscope.measure.worker import Worker, run_isolated
from tvmscope.runtime import tvm_compat
from tvmscope.tuning.farm.remote import RemoteRunner
from tvmscope.tuning.farm.rpc_processes import start_server, start_tracker
from tvmscope.tuning.farm.tracker import Address, summary

SIZE = 1024
ARGS = (((SIZE,), "float32"), ((SIZE,), "float32"))
CALLS = 6
"""Of the kernel in one measurement: two to learn how long it takes, one warm-up, three values."""


def build_kernel(folder: Path, sleep_us: int) -> Path:
    """A library that sleeps, then adds one. Called in a worker."""
    tvm = tvm_compat.import_tvm(torch=False)
    from tvm import te, tirx

    x = te.placeholder((SIZE,), "float32", name="x")

    def body(inputs: Any, outputs: Any) -> Any:
        i = tirx.Var("i", "int32")
        store = tirx.BufferStore(outputs[0], inputs[0][i] + 1.0, [i])
        sleep = tirx.Evaluate(tirx.call_extern("int32", "usleep", sleep_us))
        return tirx.SeqStmt([sleep, tirx.For(i, 0, SIZE, tirx.ForKind.SERIAL, store)])

    y = te.extern((SIZE,), [x], body, name="y", dtype="float32")
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})
    file = folder / "kernel.so"
    tvm.compile(te.create_prim_func([x, y]), target=target).export_library(str(file))
    return file


def free_port() -> int:
    """One that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(stack: ExitStack, name: str, function: Remote[..., int], *more: Any) -> int:
    """A tracker or server in a worker that ends with the stack; its port."""
    worker = stack.enter_context(Worker(name, env={"TVM_NUM_THREADS": "1"}))
    port = free_port()
    worker.call(function, "127.0.0.1", port, port + 1, *more)
    return port


@contextmanager
def servers(count: int) -> Iterator[Address]:
    """A tracker with so many servers."""
    with ExitStack() as stack:
        address = ("127.0.0.1", start(stack, "tracker", here(start_tracker)))
        for _ in range(count):
            start(stack, "server", here(start_server), "bench", address, None)
        while summary(address).count("bench") < count:
            time.sleep(0.05)
        yield address


def per_minute(count: int, library: Path, measurements: int) -> float:
    """Measurements per minute with so many servers; the clients are started before."""
    with (
        servers(count) as address,
        RemoteRunner(address, "bench") as runner,
        ThreadPoolExecutor(runner.slots) as pool,
    ):

        def measure(seed: int) -> tuple[float, ...]:
            return runner.measure(
                library, ARGS, seed=seed, repeat=3, min_repeat_ms=1.0, timeout_s=60.0
            )

        list(pool.map(measure, range(runner.slots)))
        start_s = time.perf_counter()
        done = [len(values) for values in pool.map(measure, range(measurements))]
        took_s = time.perf_counter() - start_s
    assert done == [3] * measurements
    return measurements / took_s * 60


def main() -> None:
    """Measure, then print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=int, default=24)
    parser.add_argument("--device-ms", type=float, default=200.0)
    args = parser.parse_args()
    device_s = CALLS * args.device_ms * 1e-3
    print(
        f"{args.measurements} measurements; device time SIMULATED by a sleep of "
        f"{args.device_ms:g} ms in the kernel, {device_s:g} s per measurement; "
        f"load {os.getloadavg()[0]:.2f}\n"
    )
    print("| servers | measurements per minute | against one | devices busy |\n|---|---|---|---|")
    with TemporaryDirectory() as folder:
        library = run_isolated(here(build_kernel), Path(folder), int(args.device_ms * 1e3))
        one = 0.0
        for count in (1, 2, 3):
            rate = per_minute(count, library, args.measurements)
            one = one or rate
            busy = rate / 60 * device_s / count
            print(f"| {count} | {rate:.0f} | {rate / one:.2f}x | {busy:.0%} |", flush=True)


if __name__ == "__main__":
    main()
