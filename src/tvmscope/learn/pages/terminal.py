"""Prints a lesson in the terminal: the idea, each step with loops and time, the exercise."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tvmscope.learn.catalog import CHAPTERS
from tvmscope.learn.explain.machine_code import same_code
from tvmscope.learn.facts import Built, Exhibit, LessonRun, StepRun
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.plots import NARROW, Plot
from tvmscope.learn.sweep import Sweep
from tvmscope.messages import Text as Words
from tvmscope.messages import _, msg, plural, render
from tvmscope.quantities import format_rate, format_s
from tvmscope.report.escape import clean
from tvmscope.report.terminal.explain import loop_tree

_VERDICTS = {"faster": "green", "slower": "red", "undecided": "yellow"}
_SIDE_BY_SIDE = 120
"""From this terminal width on, the loops before and after are shown side by side."""
MOST_CODE = 60
"""Lines of a program that are shown; the others are counted."""


def listing(lessons: Mapping[str, Lesson]) -> Iterator[RenderableType]:
    """Show every lesson with its title, by chapter."""
    for chapter, names in CHAPTERS:
        yield Text(render(chapter), style="bold")
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=12, style="cyan")
        for name in names:
            if name in lessons:
                table.add_row(f"  {name}", Text(render(lessons[name].title)))
        yield table
    yield Text("")
    yield Text(_("tvmscope learn split runs a lesson; --help shows how to play with it."))


def opening(lesson: Lesson) -> Iterator[RenderableType]:
    """Show the title and the idea, to read during the measurement."""
    yield Text(render(lesson.title), style="bold underline")
    yield Text("")
    for paragraph in render(lesson.idea).split("\n\n"):
        yield Text(paragraph)
        yield Text("")


def pages(
    run: LessonRun, lesson: Lesson, *, ir: bool = False, asm: bool = False
) -> Iterator[RenderableType]:
    """Show the results, from the exhibits to the exercise."""
    for exhibit in run.exhibits:
        yield from shown(exhibit)
    yield from measured(run, ir=ir, asm=asm)
    yield from question(lesson)


def measured(run: LessonRun, *, ir: bool, asm: bool) -> Iterator[RenderableType]:
    """Show the steps, and all of them in one table."""
    before: StepRun | None = None
    for number, step in enumerate(run.steps, start=1):
        beside = run.steps[step.beside - 1] if step.beside is not None else before
        yield from step_of(number, step, beside, ir=ir, asm=asm)
        before = step if step.built is not None else before
    if run.steps:
        yield from summary(run)
    yield from _warnings(run.warnings)


def shown(exhibit: Exhibit) -> Iterator[RenderableType]:
    """Something to look at."""
    yield Text(f"── {clean(render(exhibit.title))} ──", style="bold")
    yield Text(clean(render(exhibit.words), 2000))
    if exhibit.code:
        yield _program(exhibit.code, exhibit.language)
    yield Text("")


def question(lesson: Lesson) -> Iterator[RenderableType]:
    """Show the exercise, and how to answer."""
    yield Text(_("Exercise"), style="bold")
    yield Text(render(lesson.exercise.question))
    text = _("Answer with: tvmscope learn {name} --answer ...").format(name=lesson.name)
    yield Text(text, style="dim")
    if lesson.parameters:
        yield Text("")
        yield Text(_("Play: --size N, and --set with one or several values of"), style="dim")
        for p in lesson.parameters:
            yield Text(f"  {p.name}: {render(p.words)}", style="dim")
    if lesson.closing is not None:
        yield Text(render(lesson.closing), style="dim")


def step_of(
    number: int, step: StepRun, before: StepRun | None, *, ir: bool, asm: bool
) -> Iterator[RenderableType]:
    """Show a step: its primitives, its loops, its time and the reasons."""
    yield Text(f"── {number}. {render(step.title)} ──", style="bold")
    if step.note is not None:
        yield Text(render(step.note))
    if step.code:
        yield _program(step.code, "python")
    if step.params:
        values = ", ".join(f"{name} = {value}" for name, value in step.params.items())
        yield Padding(Text(values, style="dim"), (0, 0, 0, 2))
    if step.failure is not None:
        yield Text(clean(render(step.failure), 1500), style="red")
        yield Text("")
        return
    assert step.built is not None
    yield _Loops(before.built if before else None, step.built)
    if ir:
        yield _program(step.built.script, "python")
    if asm:
        yield from _machine_code(before.built if before else None, step.built)
    yield _result(step)
    yield from (_indented(reason) for reason in step.reasons)
    yield Text("")


class _Loops:
    """The loop nest after a step, beside the previous one if there is room."""

    def __init__(self, before: Built | None, after: Built) -> None:
        self._before, self._after = before, after

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._before is None or self._before.tree == self._after.tree:
            yield _tree(self._after, _("loops"))
            return
        if options.max_width < _SIDE_BY_SIDE:  # the step before has shown what was before
            yield _tree(self._after, _("loops"))
            return
        trees = [_tree(self._before, _("before")), _tree(self._after, _("after"))]
        grid = Table.grid(padding=(0, 3), expand=True)
        for _side in trees:
            grid.add_column(ratio=1, overflow="fold")
        grid.add_row(*trees)
        yield grid


def _tree(built: Built, label: str) -> Tree:
    tree = loop_tree(built.tree)
    tree.label = Text(label, style="dim")
    return tree


def _result(step: StepRun) -> Text:
    """Show whether the result is correct, and its speed."""
    assert step.built is not None
    line = Text("")
    if not step.built.right:
        return line.append(_("wrong"), "bold red")
    line.append(_("right"), "green").append(exactness(step.built.error), "dim")
    if step.seconds is None:
        return line
    line.append("  ").append(format_s(step.seconds), "bold")
    if step.interval_s is not None:
        low, high = (format_s(end) for end in step.interval_s)
        line.append(_(" (95 %: {low} to {high})").format(low=low, high=high), "dim")
    if step.gflops is not None:
        line.append(f"  {format_rate(step.gflops)} GFLOP/s")
    if step.share is not None:
        line.append(_("  {share:.0%} of the roof").format(share=step.share))
    if step.verdict is not None:
        line.append(f"  {comparison(step)}", _VERDICTS[step.verdict])
    for name, value in (step.counted.values if step.counted else {}).items():
        line.append(f"  {_(name)} {value:.3g}", "dim")
    return line


def exactness(error: float) -> str:
    """How far a right result is from numpy's."""
    if error == 0:
        return _(" (the same as numpy, bit for bit)")
    return _(" (differs from numpy by {error:.0e})").format(error=error)


def comparison(step: StepRun) -> str:
    """Format `2.1 times faster (2.0 to 2.2)`; if undecided, with the detectable difference."""
    if step.ratio is None or step.verdict is None:
        return ""
    ends = step.ratio_ci95
    number = step.beside
    other = msg("the step before") if number is None else msg("step {number}", number=number)
    if step.verdict == "undecided":
        text: Words = msg("undecided against {other}", other=other)
    elif step.verdict == "faster":
        text = msg("{ratio:.3g} times faster than {other}", ratio=step.ratio, other=other)
    else:
        text = msg("{ratio:.3g} times slower than {other}", ratio=1 / step.ratio, other=other)
    if ends is None:
        return render(text)
    low, high = ends if step.verdict != "slower" else (1 / ends[1], 1 / ends[0])
    return render(msg("{text} ({low:.3g} to {high:.3g})", text=text, low=low, high=high))


def summary(run: LessonRun, against: str | None = None) -> Iterator[RenderableType]:
    """Show all steps in a table and a plot; ratios are to the previous step, or to `against`."""
    yield _Summary(run, against or _("against before"))
    yield Text("")
    yield Plot(run.steps)
    yield Text("")
    missing = next((s.counted.missing for s in run.steps if s.counted and s.counted.missing), None)
    if missing:
        text = _("Without the processor's counters: {reason}.").format(reason=render(missing))
        yield Text(text, style="dim")
        yield Text("")


class _Summary:
    """All steps in a table; in a narrow terminal one below the other, with all digits."""

    def __init__(self, run: LessonRun, against: str) -> None:
        roof = plural("of {n} core's roof", "of {n} cores' roof", run.roof_threads)
        roof = roof.format(n=run.roof_threads)
        self._titles = (_("time"), _("GFLOP/s"), roof, against)
        self._steps = run.steps

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < NARROW:
            for step in self._steps:
                cells = zip(self._titles, self._cells(step), strict=True)
                line = " · ".join(f"{title} {cell}" for title, cell in cells if cell)
                yield Text(render(step.title))
                yield Padding(Text(line, style="dim"), (0, 0, 0, 2), expand=False)
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column(_("step"), overflow="fold")
        for title in self._titles:
            table.add_column(title, justify="right", no_wrap=True)
        for step in self._steps:
            *numbers, ratio = self._cells(step)
            style = _VERDICTS.get(step.verdict or "", "")
            table.add_row(Text(render(step.title)), *numbers, Text(ratio, style=style))
        yield table

    def _cells(self, step: StepRun) -> tuple[str, str, str, str]:
        return (
            format_s(step.seconds),
            "-" if step.gflops is None else format_rate(step.gflops),
            "-" if step.share is None else f"{step.share:.0%}",
            ratio_of(step),
        )


def ratio_of(step: StepRun) -> str:
    """`2.1x`, with the step that it was compared with, where that is not the one before."""
    if step.ratio is None:
        return ""
    other = "" if step.beside is None else " " + _("(step {number})").format(number=step.beside)
    return f"{step.ratio:.3g}x{other}"


def swept(found: Sweep) -> Iterator[RenderableType]:
    """Show a sweep: the loops at the best point, a plot, and why the others are slower."""
    best = found.best
    if best is not None and best.built is not None:
        yield Text(_("Best: {point}").format(point=render(best.title)), style="bold")
        yield _tree(best.built, _("loops"))
    yield from summary(found.run, _("against the best"))
    for point in found.points:
        if point is best:
            continue
        reasons = (point.failure,) if point.failure else point.reasons
        for reason in reasons[:1]:
            if reason:
                said = _("{point}, with the best as 'before':").format(point=render(point.title))
                yield Text(f"{said} ", "bold").append(clean(render(reason), 800))
    yield from _warnings(found.run.warnings)


def _machine_code(before: Built | None, after: Built) -> Iterator[RenderableType]:
    """Show the instructions of the innermost loop that changed."""
    if after.hot is None:
        yield Text(_("no loop with arithmetic was found in the machine code"), style="dim")
        return
    if before is not None and same_code(before.assembly, after.assembly):
        yield Text(_("machine code: unchanged"), style="dim")
        return
    if before is not None and before.hot is not None:
        yield Text(_("innermost machine loop before"), style="dim")
        yield _program("\n".join(before.hot.text), "gas")
    yield Text(_("innermost machine loop after"), style="dim")
    yield _program("\n".join(after.hot.text), "gas")


def _program(code: str, language: str) -> RenderableType:
    lines = code.splitlines()
    rest = len(lines) - MOST_CODE
    text = "\n".join(lines[:MOST_CODE])
    if rest > 0:
        text += "\n" + _("... and {n} more lines").format(n=rest)
    syntax = Syntax(text, language, theme=_theme(), background_color="default", word_wrap=True)
    return Padding(syntax, (0, 0, 0, 2))


def _theme() -> str:
    """Return a theme of the terminal's own colours; some terminals say whether they are light."""
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "ansi_light" if background in ("7", "15") else "ansi_dark"


def _indented(text: Words) -> Padding:
    return Padding(Text(clean(render(text), 1000)), (0, 0, 0, 2), expand=False)


def _warnings(warnings: tuple[Words, ...]) -> Iterator[RenderableType]:
    for text in warnings:
        yield Text(_("warning: "), style="yellow").append(clean(render(text)))
