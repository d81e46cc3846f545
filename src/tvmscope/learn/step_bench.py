"""Builds steps in worker processes and times them in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tvmscope.core.measurement import Measurement
from tvmscope.errors import TvmscopeError
from tvmscope.learn import step_builder
from tvmscope.learn.facts import Built, StepRun, Study
from tvmscope.learn.lesson import Lesson, Step
from tvmscope.learn.setting import THREADS, Setting
from tvmscope.machine import load
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.measure.worker import Worker
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress

_TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """A step to build with its parameters."""

    step: str
    title: Text
    code: str
    note: Text | None
    params: dict[str, int]
    """The lesson's own parameters; a step may set them differently."""
    chosen: dict[str, int]
    """The reader's."""
    shown: dict[str, int]
    """The final values of the parameters that its primitives name."""
    threads: int
    against: str | None = None
    """The step that it is compared with; None is the one before it."""

    @classmethod
    def of(cls, lesson: Lesson, step: Step, study: Study, chosen: dict[str, int]) -> Job:
        own = {p.name: p.value(study.target) for p in lesson.parameters}
        chosen = {name: value for name, value in chosen.items() if name not in step.params}
        effective = {**own, **chosen, **step.numbers(study.target)}
        return cls(
            step=step.name,
            title=step.title,
            code=step.code,
            note=step.note,
            params=own,
            chosen=chosen,
            shown={k: v for k, v in effective.items() if k in step.params or f'"{k}"' in step.code},
            threads=effective.get(THREADS, study.threads),
            against=step.against,
        )


@dataclass
class _Turn:
    """One step of a worker, timed by `interleave`."""

    worker: Worker
    number: int

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        self.worker.apply(step_builder.SELECT, self.number)
        return self.worker.time(n, loops, cold)

    def time_device(self, n: int) -> list[float]:
        return []  # a step has no device clock

    def pause(self) -> None:
        self.worker.pause()

    def resume(self) -> None:
        self.worker.resume()


class Bench:
    """Workers, one for each number of threads, with the compiled steps."""

    def __init__(self, lesson: str | None, file: Path | None, study: Study) -> None:
        self._lesson, self._file, self.study = lesson, file, study
        self._workers: dict[int, Worker] = {}
        self._stack = ExitStack()

    def worker(self, threads: int) -> Worker:
        """Return the worker with this many threads; start it if needed."""
        if threads not in self._workers:
            env = {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
            worker = Worker("lesson", env=env, timeout_s=_TIMEOUT_S)
            self._stack.callback(worker.kill)
            request = step_builder.Request(
                lesson=self._lesson,
                file=self._file,
                size=self.study.size,
                threads=threads,
                target=self.study.target,
                caches=self.study.caches,
            )
            worker.load(step_builder.LOAD, request)
            self._workers[threads] = worker
        return self._workers[threads]

    def outline(self) -> tuple[str, dict[str, int], str]:
        """Return the name, the parameters and the schedule's text of the reader's file."""
        return self.worker(self.study.threads).apply(step_builder.OUTLINE)

    def build(self, step: str, params: dict[str, int], chosen: dict[str, int]) -> Built:
        """Compile and check a step without timing it."""
        threads = chosen.get(THREADS, self.study.threads)
        return self.worker(threads).apply(step_builder.BUILD, step, params, chosen)[1]

    def measured(
        self, jobs: Sequence[Job], setting: Setting, progress: Progress
    ) -> tuple[tuple[StepRun, ...], tuple[Text, ...]]:
        """Build all jobs, then time them in turns; a job that fails has its reason."""
        progress.stage(msg("compiling"))
        made = []
        for done, job in enumerate(jobs):
            progress.step(done, len(jobs), job.title)
            made.append(self._built(job))
        before = load.snapshot(worker.pid for worker in self._workers.values())
        progress.stage(msg("timing in turns"))
        lanes = [Lane(run.name, turn) for run, turn in made if turn is not None]
        for done, _ in enumerate(interleave(lanes, setting.measure)):
            progress.step(done, 40 + len(lanes))
        after = load.snapshot(worker.pid for worker in self._workers.values())
        timed = iter(lanes)
        runs = [
            run if turn is None else self._timed(run, next(timed), turn, setting)
            for run, turn in made
        ]
        return tuple(runs), load.disturbances(before, after)

    def _built(self, job: Job) -> tuple[StepRun, _Turn | None]:
        run = StepRun(
            name=job.step,
            title=job.title,
            code=job.code,
            note=job.note,
            params=job.shown,
            threads=job.threads,
            against=job.against,
        )
        try:
            worker = self.worker(job.threads)
            number, built = worker.apply(step_builder.BUILD, job.step, job.params, job.chosen)
        except TvmscopeError as e:
            return replace(run, failure=e.message), None
        made = replace(run, built=built)
        return made, _Turn(worker, number) if built.right else None

    def _timed(self, run: StepRun, lane: Lane, turn: _Turn, setting: Setting) -> StepRun:
        if lane.failure is not None:
            return replace(run, failure=lane.failure.message)
        measurement = Measurement(
            rounds_s=tuple(lane.rounds_s),
            warmups_s=lane.warmups_s,
            loops=lane.pace.loops if lane.pace else 1,
        )
        turn.resume()
        counted = turn.worker.apply(step_builder.COUNT, turn.number) if setting.counters else None
        return replace(run, measurement=measurement, counted=counted)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def opened(lesson: str | None, file: Path | None, study: Study) -> Iterator[Bench]:
    """Yield a bench whose workers end with the block."""
    bench = Bench(lesson, file, study)
    try:
        yield bench
    finally:
        bench.close()
