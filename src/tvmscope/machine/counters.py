"""Counts what the processor did while a function ran: instructions, cycles, cache misses.

Linux provides its counters to a process through one file per event and thread. Virtual machines,
containers and strict settings may refuse; then there is a reason instead of a number.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tvmscope.messages import Text, marked, msg, word

_SYSCALL = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _CACHE = 0, 3
_L1D_READ_MISS = 0 | (0 << 8) | (1 << 16)
EVENTS = {
    marked("instructions"): (_HARDWARE, 1),
    marked("cycles"): (_HARDWARE, 0),
    marked("L1 misses"): (_CACHE, _L1D_READ_MISS),
    marked("cache misses"): (_HARDWARE, 3),
}
"""By the displayed name: type and number in Linux's `perf_event_attr`."""
_ATTRIBUTE_BYTES = 128
_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_ENABLE, _DISABLE = 0x2400, 0x2401


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counts of one run; empty, with the reason, if the machine does not allow any."""

    values: dict[str, float]
    missing: Text | None = None


def count(run: Callable[[], None], runs: int = 1) -> Counted:
    """Return the mean counts per run of `runs` runs, over all threads that the process has."""
    if platform.system() != "Linux" or platform.machine() not in _SYSCALL:
        return Counted(
            values={}, missing=msg("only Linux lets programs read its performance counters")
        )
    totals: dict[str, float] = {}
    reason: Text | None = None
    for name, (kind, number) in EVENTS.items():
        try:
            totals[name] = _one(run, kind, number) if runs == 1 else _mean(run, runs, kind, number)
        except OSError as e:
            reason = msg(
                "this machine does not let programs count {event} ({reason})",
                event=word(name),
                reason=os.strerror(e.errno or 0),
            )
    return Counted(values=totals, missing=None if totals else reason)


def _mean(run: Callable[[], None], runs: int, kind: int, number: int) -> float:
    def several() -> None:
        for _ in range(runs):
            run()

    return _one(several, kind, number) / runs


def _one(run: Callable[[], None], kind: int, number: int) -> float:
    """Count one event at a time: with more events than counters, Linux would estimate."""
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as stack:
        files = []
        for thread in sorted(int(p.name) for p in Path("/proc/self/task").iterdir()):
            files.append(file := _open(libc, kind, number, thread))
            stack.callback(os.close, file)
        for file in files:
            libc.ioctl(file, _ENABLE, 0)
        run()
        for file in files:
            libc.ioctl(file, _DISABLE, 0)
        return float(sum(struct.unpack("q", os.read(file, 8))[0] for file in files))


def _open(libc: ctypes.CDLL, kind: int, number: int, thread: int) -> int:
    flags = _DISABLED | _NO_KERNEL | _NO_HYPERVISOR
    attribute = struct.pack("IIQQQQQ", kind, _ATTRIBUTE_BYTES, number, 0, 0, 0, flags)
    attribute += b"\0" * (_ATTRIBUTE_BYTES - len(attribute))
    file = libc.syscall(_SYSCALL[platform.machine()], attribute, thread, -1, -1, 0)
    if file < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(file)
