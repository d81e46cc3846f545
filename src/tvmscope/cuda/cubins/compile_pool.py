"""Compiles many kernels at once, each in a worker process that may fail, hang or crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.cubins.kernel_compiler import compile_kernel
from tvmscope.cuda.units import Unit
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.machine.cpu_features import usable_cores
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, WorkerDied

_COMPILE = here(compile_kernel)
START_S = 60.0
"""The time limit of a worker's first kernel, which includes the import of Python and Triton."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One kernel to compile."""

    unit: Unit
    config: Config
    arch: str
    portable: str | None = None
    """An older architecture; the kernel may have only its instructions."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job produced no kernel."""

    job: Job
    reason: str


Outcome = CompiledKernel | Failure


def compile_many(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    timeout_s: float = 60.0,
    done: Callable[[int, Outcome], None] | None = None,
) -> list[Outcome]:
    """Return the outcomes in the order of `jobs`; `done` is called with each one and its index, in
    a thread of this pool. A job that exceeds `timeout_s` costs its worker, not the others."""
    outcomes: dict[int, Outcome] = {}
    numbers = count()  # its next() is atomic

    def work() -> None:
        worker: Worker | None = None
        try:
            while (index := next(numbers)) < len(jobs):
                if worker is None or not worker.alive:
                    worker = Worker("kernel compiler", timeout_s=START_S + timeout_s)
                outcomes[index] = outcome = _compile(worker, jobs[index])
                worker.timeout_s = timeout_s
                if done is not None:
                    done(index, outcome)
        finally:
            if worker is not None:
                worker.kill()

    threads = max(1, min(workers or usable_cores(), len(jobs)))
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(work) for _ in range(threads)]:
            future.result()
    return [outcomes[i] for i in range(len(jobs))]


def _compile(worker: Worker, job: Job) -> Outcome:
    try:
        return worker.call(_COMPILE, job.unit, job.config, job.arch, job.portable)
    except WorkerDied as e:
        return Failure(job=job, reason=e.reason)
    except TvmscopeError as e:
        return Failure(job=job, reason=one_line(e))
