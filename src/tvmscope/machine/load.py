"""Detects other activity of the machine during a measurement: load, stolen time, throttling."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tvmscope.messages import Text, msg

FOREIGN_LOAD = 0.10
STEAL = 0.02
_CPUS = Path("/sys/devices/system/cpu")
_CGROUP_STAT = Path("/sys/fs/cgroup/cpu.stat")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Counters of the machine at one moment, in clock ticks; None if it does not report them."""

    busy: int | None
    steal: int | None
    total: int | None
    ours: dict[int, int]
    """Ticks used by each of our processes."""
    core_throttles: int | None
    quota_throttles: int | None
    load: float | None


def snapshot(pids: Iterable[int]) -> Snapshot:
    """Read the counters now; `pids` are our own processes."""
    busy, steal, total = _cpu_ticks()
    counts = [_number(p) for p in _CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    known = [c for c in counts if c is not None]
    return Snapshot(
        busy=busy,
        steal=steal,
        total=total,
        ours={pid: _process_ticks(pid) for pid in (os.getpid(), *pids)},
        core_throttles=sum(known) if known else None,
        quota_throttles=_quota_throttles(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    )


def is_quiet(looks: int = 5) -> bool:
    """Return whether no other process runs now; the load average would lag by a minute."""
    for look in range(looks):
        if look:
            time.sleep(0.004)
        try:
            running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[0])
        except (OSError, ValueError, IndexError):  # not Linux
            return False
        if running > 1:  # this process is one
            return False
    return True


def disturbances(before: Snapshot, after: Snapshot) -> tuple[Text, ...]:
    """Describe events between two snapshots that may have changed the times."""
    hot, used_up = msg("the CPU ran too hot"), msg("the CPU quota was used up")
    return tuple(
        text
        for text in (
            _foreign_load(before, after),
            _stolen(before, after),
            _throttled(before.core_throttles, after.core_throttles, hot),
            _throttled(before.quota_throttles, after.quota_throttles, used_up),
        )
        if text is not None
    )


def _foreign_load(before: Snapshot, after: Snapshot) -> Text | None:
    """Return other processes' share of all cores; the load average if nothing better is known."""
    if before.busy is None or after.busy is None or before.total is None or after.total is None:
        cores = os.cpu_count() or 1
        # Our own busy worker loads every core that it uses, so only a load beyond that counts.
        if before.load is None or before.load < 0.5 * cores:
            return None
        return msg(
            "load average {load:.1f} on {cores} cores before measuring: times may be high",
            load=before.load,
            cores=cores,
        )
    total = after.total - before.total
    ours = sum(ticks - before.ours.get(pid, 0) for pid, ticks in after.ours.items() if ticks)
    foreign = (after.busy - before.busy - ours) / total if total > 0 else 0.0
    if foreign <= FOREIGN_LOAD:
        return None
    return msg(
        "other processes used {foreign:.0%} of the CPU while measuring: times may be high",
        foreign=foreign,
    )


def _stolen(before: Snapshot, after: Snapshot) -> Text | None:
    if before.steal is None or after.steal is None or before.total is None or after.total is None:
        return None
    total = after.total - before.total
    share = (after.steal - before.steal) / total if total > 0 else 0.0
    if share <= STEAL:
        return None
    return msg("the hypervisor took {share:.0%} of the CPU while measuring", share=share)


def _throttled(before: int | None, after: int | None, why: Text) -> Text | None:
    if before is None or after is None or after <= before:
        return None
    return msg("throttled {count} times while measuring: {why}", count=after - before, why=why)


def _cpu_ticks() -> tuple[int | None, int | None, int | None]:
    """Return busy, stolen and all ticks, from the first line of /proc/stat."""
    try:
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, line.split()[1:9])
    except (OSError, ValueError):
        return None, None, None
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + iowait


def _process_ticks(pid: int) -> int:
    """Return the user and system time of a process and its reaped children; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return sum(int(f) for f in fields[11:15])


def _quota_throttles() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in _CGROUP_STAT.read_text().splitlines():
            if line.startswith("nr_throttled "):
                return int(line.split()[1])
    return None


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None
