"""Compares measured steps: shares of the roof, ratios to the step before, and reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvmscope.analysis.roofline import limits_of
from tvmscope.core.comparison import verdict
from tvmscope.core.stats import ratio_interval
from tvmscope.learn.facts import LessonRun, StepRun, share_of
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.reasons import reasons
from tvmscope.messages import Text


def explained(run: LessonRun, lesson: Lesson | None = None) -> LessonRun:
    """Shares of the roof, ratios to the step before, and reasons."""
    limits = limits_of(run.study.roofs, "float32", run.roof_threads)
    steps: list[StepRun] = []
    says: dict[str, Callable[..., Text | None]] = {
        step.name: step.says for step in (lesson.steps if lesson else ()) if step.says
    }
    before: StepRun | None = None
    for step in run.steps:
        step = replace(step, share=share_of(step, limits))
        step = compared(step, before)
        told = reasons(step, before, run.study)
        if step.name in says and before is not None and step.seconds and before.seconds:
            own = says[step.name](step, before, run.study)
            told = (*((own,) if own else ()), *told)
        steps.append(replace(step, reasons=told))
        before = steps[-1] if step.measurement is not None else before
    return replace(run, steps=tuple(steps))


def compared(step: StepRun, before: StepRun | None) -> StepRun:
    """With its ratio to another step, both measured in the same rounds."""
    if before is None or before.measurement is None or step.measurement is None:
        return step
    if before.built and step.built and before.built.flops != step.built.flops:
        return step  # another computation: its time says nothing about a schedule
    found = ratio_interval(before.measurement.rounds_s, step.measurement.rounds_s)
    ends = None if found.lo is None or found.hi is None else (found.lo, found.hi)
    return replace(step, ratio=found.ratio, ratio_ci95=ends, verdict=verdict(found))
