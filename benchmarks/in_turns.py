"""Runs commands that measure: several load at once, and while one measures the others stand still.

    nobody may measure      commands load and compile, as many at once as cores and memory allow
    enough are ready        the commands that still load are stopped (SIGSTOP)
    the ready ones measure  one after the other, alone on the machine
    again                   the stopped ones go on, new ones take the free places

A command takes tvmscope's machine lock while it measures, and its log says when it waits for it.
Commands that do not measure (tests, say) run beside the others and are stopped likewise; they get a
cache folder of their own, and with it a lock of their own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import psutil

from tvmscope.measure.machine_lock import alone

WAITS = "this one waits"
"""What the log of a command says that is ready to measure."""
MEASURING_S = 12.0
"""What a ready command takes, as a rule; others are let on when twice as much is over."""
PATIENCE_S = 10.0
"""So long the first ready command waits for more."""
LEAST_FREE_BYTES = 16 << 30
"""No command is started with less free memory."""
_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command with its log; one that does not measure runs beside those that do."""

    name: str
    command: Sequence[str]
    log: Path
    measures: bool = True


@dataclass
class _Running:
    job: Job
    place: int
    process: subprocess.Popen[bytes]
    turns: int = 0
    """How many waits in its log are over."""
    interrupted: bool = False

    @property
    def waits(self) -> int:
        """How often it has waited, or waits."""
        return self.job.log.read_text(errors="replace").count(WAITS)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def is_ready(self) -> bool:
        return self.job.measures and not self.ended and self.waits > self.turns

    def interrupt(self) -> None:
        """End it as Ctrl-C would: what it has measured is kept."""
        if not self.interrupted and not self.ended:
            self.interrupted = True
            self.process.send_signal(signal.SIGINT)


@dataclass
class InTurns:
    """The commands of one run. `ended` is called with each that ends, and its exit code."""

    jobs: Iterable[Job]
    ended: Callable[[Job, int], object]
    at_once: int = 8
    together: int = 4
    """So many ready commands measure in one go."""
    until: float = float("inf")
    """When all must have ended, by time.monotonic()."""
    spare_bytes: int = LEAST_FREE_BYTES
    _running: list[_Running] = field(default_factory=list)
    _still: list[_Running] = field(default_factory=list)
    """Stopped while others measure."""

    def run(self) -> list[Job]:
        """Run all; return those that there was no time to start."""
        waiting = deque(self.jobs)
        try:
            while waiting or self._running:
                # Stopped and let on while nobody may measure: none of them takes the lock unseen.
                with self._nobody_measures() as in_time:
                    if not in_time:
                        break
                    self._go_on()
                    in_time = self._load(waiting)
                    ready = [r for r in self._running if r.is_ready]
                    self._still = [r for r in self._running if r not in ready and not r.ended]
                    if ready:
                        _signal(self._still, signal.SIGSTOP)
                self._measure(ready, last=not in_time)
                if not in_time:
                    break
        finally:
            self._end()
        return list(waiting)

    @contextmanager
    def _nobody_measures(self) -> Iterator[bool]:
        """Hold the machine's lock; False if the time is over before it can be had.

        One that measures may wait for what another holds that stands still: if it takes too long,
        all go on.
        """
        taken, over = Event(), Event()

        def hold() -> None:
            with alone(lambda text: None):
                taken.set()
                over.wait()

        holder = Thread(target=hold, daemon=True)
        holder.start()
        try:
            while not taken.wait(max(_POLL_S, min(self.until - time.monotonic(), 2 * MEASURING_S))):
                self._go_on()
                if time.monotonic() >= self.until:
                    break
            yield taken.is_set()
        finally:
            over.set()
            if taken.is_set():
                holder.join()

    def _load(self, waiting: deque[Job]) -> bool:
        """Let commands load until enough of them are ready, the first of these has waited long
        enough, or no other can become ready; False if there is no time for more."""
        since: float | None = None
        while True:
            self._reap()
            loading = [r for r in self._running if r.job.measures and not r.is_ready]
            ready = [r for r in self._running if r.is_ready]
            left = self.until - time.monotonic() - MEASURING_S * len(ready)
            if left < MEASURING_S:  # those that still load would end without a result
                for late in loading:
                    late.interrupt()
                return False
            while waiting and self._has_place():
                loading.append(self._start(waiting.popleft()))
            since = (since or time.monotonic()) if ready else None
            waited = since is not None and time.monotonic() - since >= PATIENCE_S
            if ready and (waited or not loading or len(ready) >= self.together):
                return True
            if not self._running:
                return True
            time.sleep(_POLL_S)

    def _has_place(self) -> bool:
        free = len(self._running) < self.at_once
        return free and psutil.virtual_memory().available >= self.spare_bytes

    def _start(self, job: Job) -> _Running:
        place = min(set(range(self.at_once)) - {r.place for r in self._running})
        env = dict(os.environ)
        if not job.measures:
            env["XDG_CACHE_HOME"] = str(job.log.with_suffix(".cache").resolve())
        with job.log.open("wb") as log:
            process = subprocess.Popen(job.command, stdout=log, stderr=log, env=env)
        if job.measures:
            with suppress(OSError):  # it may have ended
                os.sched_setaffinity(process.pid, self._cores(place))
        self._running.append(_Running(job, place, process))
        return self._running[-1]

    def _cores(self, place: int) -> set[int]:
        """The cores of a place: with all of them, each command would start as many threads as there
        are cores, and those that wait for each other would keep the others from theirs."""
        cores = sorted(os.sched_getaffinity(0))
        first, each = place * len(cores) // self.at_once, max(2, 2 * len(cores) // self.at_once)
        return {cores[(first + i) % len(cores)] for i in range(each)}

    def _measure(self, ready: Sequence[_Running], last: bool) -> None:
        """Wait until the ready commands have measured: they have ended, or wait again. The last
        ones have all the time that is left."""
        begun = [r.waits for r in ready]
        limit = min(time.monotonic() + 2 * MEASURING_S * len(ready), self.until)
        limit = self.until if last else limit
        while time.monotonic() < limit and any(
            not r.ended and (last or r.waits == n) for r, n in zip(ready, begun, strict=True)
        ):
            time.sleep(_POLL_S)
        for each, waits in zip(ready, begun, strict=True):
            each.turns = waits

    def _go_on(self) -> None:
        _signal(self._still, signal.SIGCONT)
        self._still = []

    def _reap(self) -> None:
        for each in [r for r in self._running if r.ended]:
            self._running.remove(each)
            self.ended(each.job, each.process.returncode)

    def _end(self) -> None:
        """Interrupt what still runs, and end what does not obey, with all that it has started."""
        self._go_on()
        started = [process for each in self._running for process in _with_children(each)]
        for each in self._running:
            each.interrupt()
        deadline = time.monotonic() + MEASURING_S
        for each in list(self._running):
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(max(0.1, deadline - time.monotonic()))
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for each in self._running:
            each.process.wait()
        self._reap()


def _signal(running: Sequence[_Running], what: signal.Signals) -> None:
    """Send a signal to commands and everything that they have started."""
    for process in (process for each in running for process in _with_children(each)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def _with_children(running: _Running) -> list[psutil.Process]:
    try:
        command = psutil.Process(running.process.pid)
        return [command, *command.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
