"""The worker's side: answers requests of its parent process, one after the other."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tvmscope import plugins
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.extras import explain
from tvmscope.measure import child_progress
from tvmscope.measure.confinement import die_with_parent, offer_to_kernel, status_bytes
from tvmscope.measure.remote import Remote
from tvmscope.storage.files import write_npz

_ALIVE_EVERY_S = 5.0
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")


class Child:
    """Has the loaded runner. Each public method answers one kind of request."""

    def __init__(self, alive: Callable[[], None]) -> None:
        self._alive = alive
        self._runner: Any = None
        self._flush: Callable[[], None] | None = None
        self._wall_s = self._cpu_s = 0.0

    def call(self, function: Remote[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        return function.resolve()(*args, **kw)

    def load(self, function: Remote[..., Any], request: Any) -> tuple[dict[str, str], float, bool]:
        start = time.perf_counter()
        self._runner = function.resolve()(request)
        load_s = time.perf_counter() - start
        gc.collect()
        gc.freeze()  # the libraries' objects stay: no collection need visit them
        return dict(self._runner.settings), load_s, hasattr(self._runner, "time_device")

    def apply(self, function: Remote[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> Any:
        return function.resolve()(self._runner, *args, **kw)

    def time(self, n: int, loops: int, cold: bool) -> list[float]:
        if hasattr(self._runner, "time"):  # a device's own clock is better than ours
            return [float(value) for value in self._runner.time(n, loops, cold)]
        run, values, clock = self._runner.run, [], time.perf_counter_ns
        if cold and self._flush is None:
            self._flush = _cache_flusher()
        told = time.monotonic()
        gc.disable()  # as timeit does: a collection belongs to no run
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        try:
            for _ in range(n):
                if cold and self._flush is not None:
                    self._flush()
                start = clock()
                for _ in repeat(None, loops):
                    run()
                values.append((clock() - start) * 1e-9 / loops)
                if time.monotonic() - told > _ALIVE_EVERY_S:
                    self._alive()
                    told = time.monotonic()
        finally:
            gc.enable()
            if not cold:  # emptying the caches takes all cores
                self._wall_s += time.perf_counter() - wall_s
                self._cpu_s += time.process_time() - cpu_s
        return values

    def cores(self) -> float | None:
        return self._cpu_s / self._wall_s if self._wall_s > 0 else None

    def time_device(self, n: int) -> list[float]:
        return [float(v) for v in self._runner.time_device(n)]

    def outputs(self, path: str) -> None:
        outputs = self._runner.outputs()
        write_npz(Path(path), {name: _storable(value) for name, value in outputs.items()})

    def peak_memory_bytes(self) -> int | None:
        return status_bytes("VmHWM")


def _storable(value: Any) -> Any:
    """Return an array; bfloat16 and similar types, which npz cannot store, become float32."""
    import numpy as np

    array = np.asarray(value)
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)


def _cache_flusher() -> Callable[[], None]:
    """Return a function that replaces the content of all caches: a buffer per core, in parallel."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    sizes = [_cache_bytes(p) for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")]
    cores = os.cpu_count() or 1
    each = max(2 * max(sizes, default=32 << 20) // cores, 8 << 20)
    buffers = [np.zeros(each // 8, dtype=np.int64) for _ in range(cores)]
    pool = ThreadPoolExecutor(cores)

    def touch(buffer: Any) -> None:
        np.add(buffer, 1, out=buffer)  # reads and writes every line, without the GIL

    def flush() -> None:
        list(pool.map(touch, buffers))

    return flush


def _cache_bytes(index: Path) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    try:
        text = (index / "size").read_text().strip()
        return int(text[:-1]) * units[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        return 0  # the caller uses the largest, so an unreadable one is ignored


def serve(connection: Connection) -> None:
    """Answer until the other side closes."""
    child = Child(alive=lambda: connection.send(("alive", None)))
    child_progress.listen(lambda step: connection.send(("alive", step)))
    while True:
        try:
            name, args = connection.recv()
        except EOFError:
            return
        except Exception as e:  # any error of unpickling is reported to the caller
            connection.send(_failure(e))
            continue
        try:
            answer: tuple[str, Any] = ("ok", getattr(child, name)(*args))
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return
        except Exception as e:  # any error of a backend becomes an answer
            traceback.print_exc()
            connection.send(_failure(e))


def _failure(error: Exception) -> tuple[str, Any]:
    """Return kind and text of an exception; our own keep the nearest type that the parent knows."""
    error = explain(error) or error
    text = one_line(error)
    if _lacked_memory(error):
        return "memory", text
    if isinstance(error, TvmscopeError):
        known = next(c for c in type(error).__mro__ if c.__module__ == TvmscopeError.__module__)
        return "error", (known.__name__, error.message)
    name = type(error).__name__
    return "error", ("RunError", text if text.startswith(name) else f"{name}: {text}")


def _lacked_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause, is about memory."""
    while error is not None:
        foreign = not isinstance(error, TvmscopeError)
        if isinstance(error, MemoryError) or (
            foreign and any(words in str(error).lower() for words in _MEMORY_WORDS)
        ):
            return True
        error = error.__cause__
    return False


def attend(connection: Connection) -> None:
    """Apply the settings, which come first, then serve."""
    try:
        path, with_plugins, limits = connection.recv()
    except EOFError:
        return
    sys.path.extend(p for p in path if p not in sys.path)
    plugins.allow(with_plugins)
    offer_to_kernel()
    limits.apply()
    serve(connection)


def main(descriptor: int, parent: int) -> None:
    """Set up the process, then serve."""
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    die_with_parent(parent)
    faulthandler.enable()
    attend(Connection(descriptor))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
