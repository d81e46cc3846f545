"""Compares measured steps: shares of the roof, ratios to the step before, and reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tvmscope.analysis.roofline import limits_of
from tvmscope.core.comparison import verdict
from tvmscope.core.stats import ratio_interval
from tvmscope.learn.explain.reasons import reasons
from tvmscope.learn.facts import LessonRun, StepRun, with_shares
from tvmscope.learn.lesson import Lesson
from tvmscope.messages import Text


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
