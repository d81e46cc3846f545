"""Runs a lesson: compiles its steps, checks them, times them in turns, and explains differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError
from tvmscope.learn.explain.compare_steps import explained
from tvmscope.learn.facts import Exhibit, LessonRun, StepRun, Study
from tvmscope.learn.lesson import Checked, Lesson
from tvmscope.learn.setting import Setting, check_parameters, known_roofs, study_of
from tvmscope.learn.step_bench import Job, opened
from tvmscope.measure.worker import run_within
from tvmscope.messages import Text, msg
from tvmscope.progress import Progress, Silent

_TIMEOUT_S = 300.0


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
