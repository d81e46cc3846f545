"""The functions of a lesson's notebook: compile the reader's primitives in the notebook's process,
check them against numpy, time them in turns with the previous step, and explain the difference."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import FunctionType
from typing import Any

from rich.console import Console
from rich.text import Text

from tvmscope import messages
from tvmscope.core.measurement import Measurement
from tvmscope.core.options import MeasureOptions
from tvmscope.errors import BuildError
from tvmscope.learn import catalog
from tvmscope.learn.explain.compare_steps import explained
from tvmscope.learn.facts import LessonRun, StepRun
from tvmscope.learn.lesson import Apply, Step
from tvmscope.learn.pages import terminal
from tvmscope.learn.run import answering, exhibits_of
from tvmscope.learn.setting import Setting, known_roofs, study_of
from tvmscope.learn.step_bench import Job
from tvmscope.learn.step_builder import Request, StepBuilder
from tvmscope.measure.interleave import Lane, interleave
from tvmscope.progress import Silent

_SECONDS = 0.3
"""The duration for each of the two steps that take turns."""


class _Turn:
    """One step that was built in this process, timed by `interleave`."""

    def __init__(self, builder: StepBuilder, number: int) -> None:
        self._builder, self._number = builder, number

    def time(self, n: int, loops: int = 1, cold: bool = False) -> list[float]:
        self._builder.select(self._number)
        found = []
        for _ in range(n):
            start = time.perf_counter()
            for _ in range(loops):
                self._builder.run()
            found.append((time.perf_counter() - start) / loops)
        return found

    def time_device(self, n: int) -> list[float]:
        return []

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class NotebookBench:
    """A lesson in a notebook; each `step` prints the same as a lesson in the terminal."""

    def __init__(self, lesson: str, *, size: int | None = None, language: str | None = None):
        from tvmscope.compiler.targets import host_target
        from tvmscope.stages.places import cache_folder

        if language is not None:
            messages.use_language(language)
        self.lesson = catalog.find(lesson)
        self._setting = Setting(
            target=host_target(cache=cache_folder()),
            size=size,
            measure=MeasureOptions(duration_s=_SECONDS, min_rounds=6),
        )
        roofs, _warnings = known_roofs(self._setting.target, Silent())
        self.study = study_of(self.lesson, self._setting, roofs)
        self._builder: StepBuilder | None = None
        self._numbers: dict[str, int] = {}
        self._runs: list[StepRun] = []
        self._console = Console(highlight=False, width=100, color_system=None, force_jupyter=False)

    def step(self, name: str, apply: Apply | None = None) -> None:
        """Compile, check and time a step; `apply` replaces the lesson's own primitives."""
        step = next(s for s in self.lesson.steps if s.name == name)
        if apply is not None:
            step = replace(step, apply=self._known(apply), source=step.code)
        steps = tuple(step if s.name == name else s for s in self.lesson.steps)
        self.lesson = replace(self.lesson, steps=steps)
        self._runs = [run for run in self._runs if run.name != name] + [self._run(step)]
        *_, last = self._explained().steps
        self._print(last, len(self._runs))

    def summary(self) -> None:
        """All steps in one table."""
        for part in terminal.summary(self._explained()):
            self._console.print(part)

    def exhibits(self) -> None:
        """Print the exhibits before the steps."""
        for exhibit in exhibits_of(self.lesson, self._setting, self.study, Silent()):
            for part in terminal.shown(exhibit):
                self._console.print(part)

    def answer(self, text: str) -> None:
        """Check an answer to the exercise."""
        with answering(self.lesson, self._setting) as study:
            checked = self.lesson.exercise.check(text, study)
        self._console.print(Text(messages.render(checked.words)))

    def _known(self, apply: Apply) -> Apply:
        """Let the reader's function use the names of the lesson's own file."""
        if not isinstance(apply, FunctionType):
            return apply
        own = next(s.apply for s in catalog.find(self.lesson.name).steps if s.apply is not None)
        names = {**vars(sys.modules[own.__module__]), **apply.__globals__}
        return FunctionType(apply.__code__, names, apply.__name__, apply.__defaults__)

    def _run(self, step: Step) -> StepRun:
        job = Job.of(self.lesson, step, self.study, {})
        run = StepRun(
            name=job.step, title=job.title, code=job.code, note=job.note, params=job.shown,
            threads=job.threads, against=job.against,
        )  # fmt: skip
        builder = self._opened(job.threads)
        builder.lesson = self.lesson
        try:
            number, built = builder.build(job.step, job.params, job.chosen)
        except BuildError as e:
            return replace(run, failure=e.message)
        self._numbers[step.name] = number
        run = replace(run, built=built)
        return replace(run, measurement=self._timed(run)) if built.right else run

    def _opened(self, threads: int) -> StepBuilder:
        if self._builder is None:
            self._builder = StepBuilder(
                Request(
                    lesson=self.lesson.name, size=self.study.size, threads=threads,
                    target=self.study.target, caches=self.study.caches,
                )
            )  # fmt: skip
        return self._builder

    def _timed(self, run: StepRun) -> Measurement:
        """In turns with the step it is compared with, whose new times replace its old ones."""
        assert self._builder is not None
        name = run.name
        timed = [r.name for r in self._runs if r.measurement is not None and r.name != name]
        names = [*([run.against] if run.against in timed else timed[-1:]), name]
        lanes = [Lane(each, _Turn(self._builder, self._numbers[each])) for each in names]
        for _ in interleave(lanes, self._setting.measure):
            pass
        found = {
            lane.name: Measurement(rounds_s=tuple(lane.rounds_s), warmups_s=lane.warmups_s)
            for lane in lanes
        }
        self._runs = [
            replace(r, measurement=found[r.name]) if r.name in found else r for r in self._runs
        ]
        return found[name]

    def _explained(self) -> LessonRun:
        run = LessonRun(
            lesson=self.lesson.name, size=self.study.size, study=self.study,
            steps=tuple(self._runs),
        )  # fmt: skip
        return explained(run, self.lesson)

    def _print(self, run: StepRun, number: int) -> None:
        before: Any = next((r for r in reversed(self._runs[:-1]) if r.built is not None), None)
        before = self._runs[run.beside - 1] if run.beside is not None else before
        for part in terminal.step_of(number, replace(run, code=""), before, ir=False, asm=False):
            self._console.print(part)
