"""Measures this machine's roofs: multiply-adds per second, bytes per second of each cache level.

A small C library, built by the system compiler for this CPU, runs on the requested number of
threads. The best of several runs counts: a roof is what the machine can do, not what it did under
load.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tvmscope import plugins
from tvmscope.compiler.codegen.linkers import linker_for
from tvmscope.core.profile import Roof
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, SchemaError
from tvmscope.machine import cpu_features, cuda_device, load
from tvmscope.messages import msg
from tvmscope.profiling import gpu_roofs
from tvmscope.storage import message_table
from tvmscope.storage.codec import decode, encode
from tvmscope.storage.files import write_text_atomic

_REPEATS = 9
_CHAINS = 12
_STEPS = 2_000_000
_READ_BYTES = 256 << 20
_MOST_TRIES = 4
"""On a machine that is never quiet, measuring again would cost seconds for ever."""
_FORM = 5  # of the kept file; roofs kept in another form are measured again
LEVELS = {"L1": 16 << 10, "L2": 256 << 10, "L3": 4 << 20, "DRAM": 256 << 20}
"""Bytes per thread of a read; each fits the level it is named after."""


def measure(
    target: Target, cache: Path | None = None, threads: int | None = None, *, fresh: bool = False
) -> tuple[Roof, ...]:
    """The roofs of this CPU for one thread, for `threads` and for all of the target's cores, or of
    this GPU.

    Roofs that were measured beside other work are too low. They are measured again the next time,
    a few times at most, and the best of all counts.
    """
    counts = sorted({1, threads or 1, target.cores})
    parts = [_machine(target), target.vector_bits, counts, LEVELS, _FORM]
    key = json.dumps(parts + plugins.identities())
    file = cache and cache / f"roofs-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    kept = _read(file) if file and not fresh else None
    before = load.snapshot(())
    if kept is not None and not _again(kept.disturbed):
        return kept.roofs
    roofs = gpu_roofs.measure(target) if target.kind == "cuda" else _measure(target, counts)
    disturbed = int(target.kind != "cuda" and bool(load.disturbances(before, load.snapshot(()))))
    if kept is not None:
        roofs, disturbed = _best(roofs, kept.roofs), disturbed and kept.disturbed + 1
    if file:
        data = [encode(roof) for roof in roofs]
        said = {"roofs": data, "messages": message_table.table(data), "disturbed": disturbed}
        write_text_atomic(file, json.dumps(said))
    return roofs


def _again(disturbed: int) -> bool:
    """Return whether to measure again: while there are tries left, then only on a quiet machine."""
    return disturbed > 0 and (disturbed < _MOST_TRIES or load.is_quiet())


def _best(roofs: tuple[Roof, ...], others: tuple[Roof, ...]) -> tuple[Roof, ...]:
    """Each roof, or that of the same kind that is higher."""

    def kind(roof: Roof) -> tuple[str, str, int, str | None, str | None]:
        return roof.device, roof.dtype, roof.threads, roof.level, roof.products

    known = {kind(roof): roof for roof in others}
    return tuple(max(roof, known.get(kind(roof), roof), key=_height) for roof in roofs)


def _height(roof: Roof) -> float:
    return roof.flops_per_s or roof.bytes_per_s or 0.0


def _machine(target: Target) -> str:
    device = cuda_device.find() if target.kind == "cuda" else None
    return device.name if device else cpu_features.model_name()


@dataclass(frozen=True)
class _Kept:
    roofs: tuple[Roof, ...]
    disturbed: int
    """How often they were measured, each time beside other work; 0 once they were alone."""


def _read(file: Path) -> _Kept | None:
    try:
        data = json.loads(file.read_text())
        texts = message_table.read(data["messages"])
        roofs = tuple(decode(Roof, item, texts) for item in data["roofs"])
        return _Kept(roofs, data["disturbed"])
    except (OSError, json.JSONDecodeError, SchemaError, TypeError, LookupError):
        return None  # none yet, or from another version: measure again


def _measure(target: Target, counts: list[int]) -> tuple[Roof, ...]:
    roofs = []
    with TemporaryDirectory(prefix="tvmscope-") as folder:
        library = _build(target, Path(folder))
        for threads in counts:
            for dtype in ("float32", "float64"):
                rate = _flops_per_s(library, target, dtype, threads)
                how = msg(
                    "{n} chains of {bits}-bit multiply-adds", n=_CHAINS, bits=target.vector_bits
                )
                roofs.append(
                    Roof(dtype=dtype, threads=threads, flops_per_s=rate, bytes_per_s=None, how=how)
                )
            for level, size in LEVELS.items():
                rate = _bytes_per_s(library, size, threads)
                how = msg("{level}: reading {size} KiB per thread", level=level, size=size >> 10)
                roofs.append(
                    Roof(
                        dtype="float32",
                        threads=threads,
                        flops_per_s=None,
                        bytes_per_s=rate,
                        how=how,
                        level=level,
                        size_bytes=size * threads,
                    )
                )
    return tuple(roofs)


def _build(target: Target, folder: Path) -> ctypes.CDLL:
    source = folder / "roofs.c"
    source.write_text(resources.files("tvmscope.profiling").joinpath("roofs.c").read_text())
    library = folder / "roofs.so"
    command = [*linker_for(target), "-x", "c", "-O3", "-march=native", "-shared", "-fPIC"]
    if target.vector_bits < 512 and platform.machine().lower() in ("x86_64", "amd64"):
        command.append("-mno-avx512f")  # the CPU may have it, but not the target (or a capped host)
    command += [f"-DVECTOR_BYTES={target.vector_bits // 8}", "-o", str(library), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise BuildError(
            msg(
                "{command} could not build the roof kernels: {said}",
                command=command[0],
                said=built.stderr[-200:],
            )
        )
    return ctypes.CDLL(str(library))


def _flops_per_s(library: Any, target: Target, dtype: str, threads: int) -> float:
    run = getattr(library, f"fma_{dtype}")
    run.restype = ctypes.c_float if dtype == "float32" else ctypes.c_double
    lanes = target.vector_bits // (np.dtype(dtype).itemsize * 8)
    work = 2.0 * _CHAINS * lanes * _STEPS * threads
    return work / _best_s(lambda _: run(ctypes.c_long(_STEPS)), threads)


def _bytes_per_s(library: Any, size: int, threads: int) -> float:
    run = library.read_floats
    run.restype = ctypes.c_float
    arrays = [np.ones(size // 4, np.float32) for _ in range(threads)]
    passes = max(1, _READ_BYTES // size)

    def read(thread: int) -> None:
        data = arrays[thread].ctypes.data_as(ctypes.c_void_p)
        run(data, ctypes.c_long(arrays[thread].size), ctypes.c_long(passes))

    return float(size) * passes * threads / _best_s(read, threads)


def _best_s(run: Callable[[int], object], threads: int) -> float:
    """Return the shortest time in which all threads do the work once; ctypes releases the GIL."""
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_REPEATS + 1):
            start = time.perf_counter()
            list(pool.map(run, range(threads)))
            best = min(best, time.perf_counter() - start)
    return best
