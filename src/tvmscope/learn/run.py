"""Runs a lesson: compiles its steps, checks them, times them in turns, and explains differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.analysis.roofline import limits_of
from tvmscope.core.comparison import verdict
from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.core.profile import Roof
from tvmscope.core.stats import ratio_interval
from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.learn import workshop
from tvmscope.learn.facts import Built, Exhibit, StepRun, Study, with_shares
from tvmscope.learn.lesson import Checked, Lesson, Step
from tvmscope.learn.reasons import reasons
from tvmscope.machine import caches, load
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import Worker, run_within
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress, Silent
from tvmscope.stages.places import cache_folder

if TYPE_CHECKING:
    import tvmscope.profiling.roofs

_ROOFS = remote(lambda: tvmscope.profiling.roofs.measure)
_ROOFS_TIMEOUT_S = 300.0
_TIMEOUT_S = 300.0
THREADS = "threads"
"""A parameter of every lesson: the number of threads of TVM's pool."""
DURATION_S = 0.7
"""The time for each step over all rounds; a lesson of ten steps takes half a minute."""


@dataclass(frozen=True, kw_only=True)
class LessonRun:
    """The results of a lesson on this machine."""

    lesson: str
    size: int
    study: Study
    steps: tuple[StepRun, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    warnings: tuple[Text, ...] = ()

    @property
    def roof_threads(self) -> int:
        """The cores of the roof: as many as the most parallel step can use."""
        return max((step.uses for step in self.steps), default=1)

    @property
    def roof_gflops(self) -> float | None:
        """The peak GFLOP/s of this many cores."""
        rate = limits_of(self.study.roofs, "float32", self.roof_threads).flops_per_s
        return None if rate is None else rate * 1e-9


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The reader's settings."""

    target: Target
    size: int | None = None
    chosen: dict[str, int] = field(default_factory=dict)
    measure: MeasureOptions = field(
        default_factory=lambda: MeasureOptions(duration_s=DURATION_S, min_rounds=6)
    )
    live: bool = False
    """Whether exhibits are measured now (`--run`) or stored ones shown."""
    counters: bool = True


def run(lesson: Lesson, setting: Setting, progress: Progress | None = None) -> LessonRun:
    """Run a lesson from its exhibits to the reasons of its last step."""
    progress = progress or Silent()
    check_parameters(lesson, setting)
    roofs, warnings = known_roofs(setting.target, progress)
    study = study_of(lesson, setting, roofs)
    exhibits = exhibits_of(lesson, setting, study, progress)
    steps: tuple[StepRun, ...] = ()
    if lesson.steps:
        with opened(lesson.name, None, study) as bench:
            jobs = [Job.of(lesson, step, study, setting.chosen) for step in lesson.steps]
            steps, disturbed = bench.measured(jobs, setting, progress)
            warnings += (*disturbed, *_one_core(steps, setting.target))
    run = LessonRun(
        lesson=lesson.name,
        size=study.size,
        study=study,
        steps=steps,
        exhibits=exhibits,
        warnings=warnings,
    )
    return explained(run, lesson)


def _one_core(steps: Sequence[StepRun], target: Target) -> tuple[Text, ...]:
    """Say what a machine with a single core cannot show."""
    if target.cores > 1 or not any(s.built is not None and s.built.launches for s in steps):
        return ()
    text = msg(
        "this process may use one core only: steps that hand work out to threads pay for it and "
        "gain nothing here"
    )
    return (text,)


def check_answer(
    lesson: Lesson, setting: Setting, answer: str, progress: Progress | None = None
) -> Checked:
    """Check an answer to the exercise."""
    with answering(lesson, setting, progress) as study:
        return lesson.exercise.check(answer, study)


@contextmanager
def answering(
    lesson: Lesson, setting: Setting, progress: Progress | None = None
) -> Iterator[Study]:
    """Yield the machine, and a bench if needed, to check an exercise."""
    check_parameters(lesson, setting)
    roofs, _ = known_roofs(setting.target, progress or Silent())
    study = study_of(lesson, setting, roofs)
    own = {p.name: p.value(study.target) for p in lesson.parameters}
    with opened(lesson.name, None, study) as bench:
        yield replace(study, build=lambda step, chosen: bench.build(step, own, chosen))


def study_of(lesson: Lesson, setting: Setting, roofs: tuple[Roof, ...]) -> Study:
    """Return the machine and the parameters; the reader's override the lesson's."""
    params = {p.name: p.value(setting.target) for p in lesson.parameters}
    return Study(
        target=setting.target,
        size=lesson.size if setting.size is None else setting.size,
        threads=setting.chosen.get(THREADS, setting.target.cores),
        params={**params, **setting.chosen},
        caches=caches.data_caches(),
        roofs=roofs,
    )


def check_parameters(lesson: Lesson, setting: Setting) -> None:
    """Raise if a parameter is unknown to all steps."""
    known = [p.name for p in lesson.parameters] + [THREADS]
    for name in setting.chosen:
        if name not in known:
            raise UsageError(
                msg(
                    "the lesson {lesson} has no parameter '{name}'; it has {known}",
                    lesson=lesson.name,
                    name=name,
                    known=known,
                )
            )
    if setting.size is not None and setting.size < 1:
        raise UsageError(msg("--size is a whole number over 0"))


def known_roofs(target: Target, progress: Progress) -> tuple[tuple[Roof, ...], tuple[Text, ...]]:
    """Return the machine's roofs, cached or measured now; none, with the reason, if it fails."""
    progress.stage(msg("roofs"))
    try:
        return run_within(_ROOFS_TIMEOUT_S, _ROOFS, target, cache_folder()), ()
    except TvmscopeError as e:
        text = msg(
            "the machine's roofs are unknown, so shares of them are left out: {reason}",
            reason=one_line(e),
        )
        return (), (text,)


def exhibits_of(
    lesson: Lesson, setting: Setting, study: Study, progress: Progress
) -> tuple[Exhibit, ...]:
    """Return the exhibits that a lesson shows before its steps."""
    if lesson.exhibits is None:
        return ()
    progress.stage(msg("preparing"))
    try:
        return run_within(_TIMEOUT_S, lesson.exhibits, study.size, setting.target, setting.live)
    except TvmscopeError as e:  # the rest of the lesson does not need them
        title = msg("What cannot be shown on this machine")
        return (Exhibit(title=title, words=e.message),)


# ---- measuring ---------------------------------------------------------------------------------


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
    """The reader's parameters."""
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
    """One step of a workshop, timed by `interleave`."""

    worker: Worker
    number: int

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        self.worker.apply(workshop.SELECT, self.number)
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
            request = workshop.Request(
                lesson=self._lesson,
                file=self._file,
                size=self.study.size,
                threads=threads,
                target=self.study.target,
                caches=self.study.caches,
            )
            worker.load(workshop.LOAD, request)
            self._workers[threads] = worker
        return self._workers[threads]

    def outline(self) -> tuple[str, dict[str, int], str]:
        """Return the name, the parameters and the schedule's text of the reader's file."""
        return self.worker(self.study.threads).apply(workshop.OUTLINE)

    def build(self, step: str, params: dict[str, int], chosen: dict[str, int]) -> Built:
        """Compile and check a step without timing it."""
        threads = chosen.get(THREADS, self.study.threads)
        return self.worker(threads).apply(workshop.BUILD, step, params, chosen)[1]

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
            number, built = worker.apply(workshop.BUILD, job.step, job.params, job.chosen)
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
        counted = turn.worker.apply(workshop.COUNT, turn.number) if setting.counters else None
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


# ---- comparing ---------------------------------------------------------------------------------


def explained(run: LessonRun, lesson: Lesson | None = None) -> LessonRun:
    """Add shares of the roof, ratios to the previous step, and reasons."""
    limits = limits_of(run.study.roofs, "float32", run.roof_threads)
    steps: list[StepRun] = []
    says: dict[str, Callable[..., Text | None]] = {
        step.name: step.says for step in (lesson.steps if lesson else ()) if step.says
    }
    before: StepRun | None = None
    for step in with_shares(run.steps, limits):
        number, beside = _beside(step, steps)
        if beside is None or beside is before:
            number, beside = None, before
        step = compared(replace(step, beside=number), beside)
        told = reasons(step, beside, run.study)
        if step.name in says and beside is not None and step.seconds and beside.seconds:
            own = says[step.name](step, beside, run.study)
            told = (*((own,) if own else ()), *told)
        steps.append(replace(step, reasons=told))
        before = steps[-1] if step.measurement is not None else before
    return replace(run, steps=tuple(steps))


def _beside(step: StepRun, before: Sequence[StepRun]) -> tuple[int | None, StepRun | None]:
    """Return the measured step that a step asks to be compared with, and its number."""
    for number, other in enumerate(before, start=1):
        if other.name == step.against and other.measurement is not None:
            return number, other
    return None, None


def compared(step: StepRun, before: StepRun | None) -> StepRun:
    """Add its ratio to another step, both measured in the same rounds."""
    if before is None or before.measurement is None or step.measurement is None:
        return step
    if before.built and step.built and before.built.flops != step.built.flops:
        return step  # another computation: its time says nothing about a schedule
    found = ratio_interval(before.measurement.rounds_s, step.measurement.rounds_s)
    ends = None if found.lo is None or found.hi is None else (found.lo, found.hi)
    return replace(step, ratio=found.ratio, ratio_ci95=ends, verdict=verdict(found))


def as_json(run: LessonRun) -> dict[str, Any]:
    """Return the output of `--json`: everything measured, without the texts of programs."""
    from tvmscope.storage.codec import encode

    return {
        "lesson": run.lesson,
        "size": run.size,
        "threads": run.study.threads,
        "roof_threads": run.roof_threads,
        "params": run.study.params,
        "steps": [
            {
                "name": step.name,
                "params": step.params,
                "error": step.built.error if step.built else None,
                "failure": step.failure,
                "median_s": step.seconds,
                "ci95_s": step.interval_s,
                "gflops": step.gflops,
                "share_of_roof": step.share,
                "compared_with": step.beside and run.steps[step.beside - 1].name,
                "ratio_to_step_before": step.ratio,
                "ratio_ci95": step.ratio_ci95,
                "verdict": step.verdict,
                "reasons": step.reasons,
                "counters": step.counted.values if step.counted else {},
                "measurement": encode(step.measurement),
            }
            for step in run.steps
        ],
        "exhibits": [{"title": e.title, "words": e.words} for e in run.exhibits],
        "warnings": run.warnings,
    }
