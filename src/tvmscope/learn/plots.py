"""Plots measured steps: as bars in the terminal, and as an SVG image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from tvmscope.learn.facts import StepRun
from tvmscope.messages import _, render
from tvmscope.quantities import format_rate, format_s
from tvmscope.report.sections.figures import bars

_WIDTH = 40
NARROW = 80
"""In a narrower terminal, a table of steps would lose their names."""
_PARTS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Plot:
    """One bar for each step: its speed, or the inverse of its time if there is no arithmetic.

    In a narrow terminal a step's name and number are above its bar.
    """

    runs: Sequence[StepRun]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < NARROW
        width = min(_WIDTH, options.max_width - 2) if narrow else _WIDTH
        best = max((speed(run) or 0.0 for run in self.runs), default=0.0)
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(overflow="fold", max_width=34)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        for run in self.runs:
            value = speed(run)
            bar = Text(_bar(width * value / best if value and best else 0.0), style="cyan")
            if narrow:
                yield Text(f"{render(run.title)}: {label(run)}")
                yield bar
            else:
                table.add_row(Text(render(run.title)), bar, label(run))
        if not narrow:
            yield table


def speed(run: StepRun) -> float | None:
    """Return the value of a bar: GFLOP/s, or runs per second."""
    if run.gflops is not None:
        return run.gflops
    return None if run.seconds is None else 1 / run.seconds


def label(run: StepRun) -> str:
    """Return a bar's number, or words if there is none."""
    if run.gflops is not None:
        return f"{format_rate(run.gflops)} GFLOP/s"
    if run.seconds is not None:
        return format_s(run.seconds)
    return _("failed") if run.failure else _("wrong result")


def _bar(length: float) -> str:
    whole, part = divmod(round(length * 8), 8)
    return "█" * whole + (_PARTS[part] if part else "")


def svg(title: str, runs: Sequence[StepRun], roof: float | None) -> str:
    """Return the same bars as a document, with the roof as a line if the bars are GFLOP/s."""
    timed = [run for run in runs if speed(run) is not None]
    arithmetic = all(run.gflops is not None for run in timed)
    return bars(
        title,
        [(render(run.title), speed(run) or 0.0, label(run)) for run in timed],
        unit=_("GFLOP/s") if arithmetic else _("runs per second"),
        limit=roof if arithmetic else None,
    )
