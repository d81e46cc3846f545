"""A lesson's run as a document: headings, paragraphs, programs, tables and figures.

Texts are in the reader's language when the blocks are made; writers only lay them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvmscope.core.profile import Loop
from tvmscope.learn import plots
from tvmscope.learn.facts import LessonRun, StepRun
from tvmscope.learn.lesson import Lesson
from tvmscope.learn.pages.terminal import MOST_CODE, comparison, exactness, ratio_of
from tvmscope.messages import _, plural, render
from tvmscope.quantities import format_rate, format_s
from tvmscope.report.sections.loops import nest


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the document's."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; quiet ones are remarks."""

    text: str
    quiet: bool = False


@dataclass(frozen=True)
class Code:
    """A program, loops or a command."""

    text: str
    language: str


@dataclass(frozen=True)
class Rows:
    """A table; the first column is text, the others are numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """An SVG document, and its description."""

    svg: str
    words: str


Block = Heading | Paragraph | Code | Rows | Figure


def blocks(run: LessonRun, lesson: Lesson, when: str) -> Iterator[Block]:
    """Yield the whole lesson with its results; `when` and the machine are below the title."""
    yield Heading(1, render(lesson.title))
    yield Paragraph(_made(run, when), quiet=True)
    yield from (Paragraph(text) for text in render(lesson.idea).split("\n\n"))
    for exhibit in run.exhibits:
        yield Heading(2, render(exhibit.title))
        yield from (Paragraph(text) for text in render(exhibit.words).split("\n\n"))
        if exhibit.code:
            yield from _program(exhibit.code, exhibit.language)
    for number, step in enumerate(run.steps, start=1):
        yield from _step(number, step)
    if run.steps:
        yield Heading(2, _("All steps"))
        yield _table(run)
        if any(plots.speed(step) is not None for step in run.steps):
            title = render(lesson.title)
            yield Figure(plots.svg(title, run.steps, run.roof_gflops), title)
    yield from (Paragraph(render(text), quiet=True) for text in run.warnings)
    yield from _exercise(lesson)


def _made(run: LessonRun, when: str) -> str:
    text = _("Measured on {when}: {target}, {threads}, size {size}.")
    count = run.study.threads
    threads = plural("{n} thread", "{n} threads", count).format(n=count)
    return text.format(when=when, target=run.study.target.label, threads=threads, size=run.size)


def _step(number: int, step: StepRun) -> Iterator[Block]:
    yield Heading(2, f"{number}. {render(step.title)}")
    if step.note is not None:
        yield Paragraph(render(step.note))
    if step.code or step.params:
        values = [f"# {name} = {value}" for name, value in step.params.items()]
        yield from _program("\n".join([*values, step.code]).rstrip(), "python")
    if step.failure is not None:
        yield Paragraph(render(step.failure))
        return
    if step.built is None:
        return
    yield Code("\n".join(_loops(step.built.tree)), "text")
    yield Paragraph(_result(step))
    yield from (Paragraph(render(reason)) for reason in step.reasons)


def _loops(tree: tuple[Loop, ...]) -> Iterator[str]:
    for line in nest(tree):
        mode = f"  [{line.mode}]" if line.mode not in ("", "serial") else ""
        yield f"{line.indent}{line.text}{mode}"


def _result(step: StepRun) -> str:
    assert step.built is not None
    if not step.built.right:
        return _("wrong")
    parts = [_("right") + exactness(step.built.error)]
    if step.seconds is not None:
        parts.append(format_s(step.seconds))
        if step.interval_s is not None:
            low, high = (format_s(end) for end in step.interval_s)
            parts[-1] += _(" (95 %: {low} to {high})").format(low=low, high=high)
    if step.gflops is not None:
        parts.append(f"{format_rate(step.gflops)} GFLOP/s")
    if step.share is not None:
        parts.append(_("{share:.0%} of the roof").format(share=step.share))
    if step.verdict is not None:
        parts.append(comparison(step))
    return " · ".join(parts)


def _table(run: LessonRun) -> Rows:
    roof = plural("of {n} core's roof", "of {n} cores' roof", run.roof_threads)
    titles = (_("step"), _("time"), _("GFLOP/s"), roof.format(n=run.roof_threads))
    rows = [
        (
            render(step.title),
            format_s(step.seconds),
            "-" if step.gflops is None else format_rate(step.gflops),
            "-" if step.share is None else f"{step.share:.0%}",
            ratio_of(step),
        )
        for step in run.steps
    ]
    return Rows((*titles, _("against before")), rows)


def _exercise(lesson: Lesson) -> Iterator[Block]:
    yield Heading(2, _("Exercise"))
    yield Paragraph(render(lesson.exercise.question))
    yield Code(f"tvmscope learn {lesson.name} --answer ...", "bash")
    if lesson.parameters:
        yield Paragraph(_("Play: --size N, and --set with one or several values of"))
        named = [f"{p.name}: {render(p.words)}" for p in lesson.parameters]
        yield Code("\n".join(named), "text")
    if lesson.closing is not None:
        yield Paragraph(render(lesson.closing), quiet=True)


def _program(code: str, language: str) -> Iterator[Block]:
    lines = code.splitlines()
    rest = len(lines) - MOST_CODE
    yield Code("\n".join(lines[:MOST_CODE]), language)
    if rest > 0:
        yield Paragraph(_("... and {n} more lines").format(n=rest), quiet=True)
