"""A warm pool of builder processes: a crash or hang costs one candidate."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.measure.remote import Remote, remote
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import Text, msg
from tvmscope.tuning.trials.kernels import WARM, Arguments
from tvmscope.tuning.trials.runners import START_TIMEOUT_S

if TYPE_CHECKING:
    import tvmscope.compiler.tunable.extract

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Tunables:
    """The functions that make a kernel from a function's file and a candidate."""

    build_candidate: Remote[[Path, Candidate, Target, Path], None]
    build_plain: Remote[[Path, Target, Path], None]
    arguments: Remote[[Path], Arguments]
    trace_of: Remote[[Path, Candidate, Target], tuple[str, list[str]]]


TUNABLES = Tunables(
    build_candidate=remote(lambda: tvmscope.compiler.tunable.extract.build_candidate),
    build_plain=remote(lambda: tvmscope.compiler.tunable.extract.build_plain),
    arguments=remote(lambda: tvmscope.compiler.tunable.extract.arguments),
    trace_of=remote(lambda: tvmscope.compiler.tunable.extract.trace_of),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A candidate to build; without one, the unscheduled function, the reference of the others."""

    function: Path
    """The lowering's file."""
    candidate: Candidate | None
    target: Target
    output: Path


@dataclass(frozen=True)
class Built:
    """The result of a job: a library, or the reason why there is none."""

    job: Job
    failure: Text | None = None


class Builders:
    """Up to `count` processes, started by the first jobs and kept warm."""

    def __init__(
        self,
        count: int,
        *,
        device: str = "cpu",
        timeout_s: float = 60.0,
        tunables: Tunables = TUNABLES,
    ) -> None:
        self.device = device
        self.timeout_s = timeout_s
        self._tunables = tunables
        self._workers: set[Worker] = set()
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(count):
            self._idle.put(None)
        self._lock = Lock()
        self._closed = False
        # Linux ends a worker with the thread that made it: these threads stay.
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="builder")

    @property
    def pids(self) -> list[int]:
        """The process ids of the living builders."""
        with self._lock:
            return [worker.pid for worker in self._workers]

    def submit(self, job: Job) -> Future[Built]:
        """Build it when a process is free; the result contains any error."""
        return self._threads.submit(self._one, job)

    def arguments(self, file: Path) -> Arguments:
        """Return the arguments of the function in `file`, which only TVM can read."""
        return self._threads.submit(self._ask, self._tunables.arguments, file).result()

    def trace_of(self, file: Path, candidate: Candidate, target: Target) -> tuple[str, list[str]]:
        """Return a candidate's trace on the function in `file`: as JSON, and as Python calls."""
        asked = self._threads.submit(self._ask, self._tunables.trace_of, file, candidate, target)
        return asked.result()

    def pause(self) -> None:
        """Stop the idle processes: nothing may disturb a measurement."""
        with self._lock:
            for worker in self._workers:
                worker.pause()

    def close(self) -> None:
        """End all processes, even busy ones."""
        self._closed = True
        with self._lock:
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _one(self, job: Job) -> Built:
        job.output.parent.mkdir(parents=True, exist_ok=True)
        try:
            if job.candidate is None:
                self._ask(self._tunables.build_plain, job.function, job.target, job.output)
            else:
                args = (job.function, job.candidate, job.target, job.output)
                self._ask(self._tunables.build_candidate, *args)
        except WorkerDied as e:
            return Built(job, _building(e.reason))
        except TvmscopeError as e:
            return Built(job, _building(one_line(e)))
        if not job.output.is_file():
            return Built(job, _building(msg("no library was written")))
        return Built(job)

    def _ask(self, function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
        worker = self._idle.get()
        try:
            worker = worker or self._start()
            worker.call(WARM, self.device)  # the first call takes seconds
            worker.timeout_s = self.timeout_s
            return worker.call(function, *args, **kw)
        except WorkerDied:
            with self._lock:
                self._workers -= {worker}
            worker = None
            raise
        finally:
            self._idle.put(worker)

    def _start(self) -> Worker:
        with self._lock:
            if self._closed:
                raise TvmscopeError(msg("building was stopped"))
            worker = Worker("builder", env={"TVM_NUM_THREADS": "1"}, timeout_s=START_TIMEOUT_S)
            self._workers.add(worker)
            return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _building(reason: Text) -> Text:
    return msg("building: {reason}", reason=reason)
