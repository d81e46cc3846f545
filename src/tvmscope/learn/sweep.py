"""Varies a lesson's parameters: builds and times one step for every combination of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tvmscope.analysis.roofline import limits_of
from tvmscope.errors import UsageError
from tvmscope.learn.explain.compare_steps import compared
from tvmscope.learn.explain.reasons import reasons
from tvmscope.learn.facts import LessonRun, StepRun, with_shares
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.setting import Setting, check_parameters, known_roofs, study_of
from tvmscope.learn.step_bench import Bench, Job, opened
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress, Silent

MOST_POINTS = 40
"""More points would take over a minute."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A step at every requested point; the fastest one is compared with all others."""

    names: tuple[str, ...]
    """The parameters that vary."""
    run: LessonRun

    @property
    def points(self) -> tuple[StepRun, ...]:
        return self.run.steps

    @property
    def best(self) -> StepRun | None:
        timed = [p for p in self.points if p.seconds is not None]
        return min(timed, key=lambda p: p.seconds or 0.0, default=None)


def combinations(values: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Return every choice of one value for each name."""
    found = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    if len(found) > MOST_POINTS:
        raise UsageError(
            msg(
                "{count} combinations are more than {most}; give fewer values",
                count=len(found),
                most=MOST_POINTS,
            )
        )
    return found


def played_step(lesson: Lesson, names: tuple[str, ...]) -> str:
    """Return the last step whose own primitives use one of the parameters."""
    for step in reversed(lesson.steps):
        if step.apply is not None and any(f'"{name}"' in step.code for name in names):
            return step.name
    with_code = [step.name for step in lesson.steps if step.apply is not None]
    if not with_code:
        raise UsageError(msg("the lesson {name} has nothing to sweep", name=lesson.name))
    return with_code[-1]


def sweep(
    lesson: Lesson,
    setting: Setting,
    values: Mapping[str, tuple[int, ...]],
    progress: Progress | None = None,
) -> Sweep:
    """Build and time the step that uses the parameters, for all their values."""
    points = combinations(values)
    for point in points:
        check_parameters(lesson, replace(setting, chosen=point))
    progress = progress or Silent()
    roofs, warnings = known_roofs(setting.target, progress)
    study = study_of(lesson, setting, roofs)
    name = played_step(lesson, tuple(values))
    step = next(s for s in lesson.steps if s.name == name)
    jobs = [replace(Job.of(lesson, step, study, point), title=_title(point)) for point in points]
    with opened(lesson.name, None, study) as bench:
        return swept(lesson.name, bench, jobs, setting, values, progress, warnings)


def swept(
    name: str,
    bench: Bench,
    jobs: Sequence[Job],
    setting: Setting,
    values: Mapping[str, tuple[int, ...]],
    progress: Progress,
    warnings: tuple[Text, ...],
) -> Sweep:
    """Time the jobs in turns and compare each with the fastest."""
    study = bench.study
    steps, disturbed = bench.measured(jobs, setting, progress)
    run = LessonRun(
        lesson=name, size=study.size, study=study, steps=steps, warnings=(*warnings, *disturbed)
    )
    limits = limits_of(study.roofs, "float32", run.roof_threads)
    steps = with_shares(steps, limits)
    names = tuple(name for name, tried in values.items() if len(tried) > 1) or tuple(values)
    found = Sweep(names=names, run=replace(run, steps=steps))
    best = found.best
    told = []
    for step in steps:
        beside = compared(step, best) if step is not best else step
        told.append(replace(beside, reasons=reasons(beside, best, study, most=1)))
    return replace(found, run=replace(run, steps=tuple(told)))


def _title(point: Mapping[str, int]) -> Text:
    return ", ".join(f"{name}={value}" for name, value in point.items())
