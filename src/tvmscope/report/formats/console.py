"""Renders tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    JustifyMethod,
    RenderableType,
    RenderResult,
)
from rich.measure import Measurement as Width
from rich.table import Table
from rich.text import Text

from tvmscope.core.session import Session
from tvmscope.messages import _, plural
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.renderers import Renderer
from tvmscope.report.sections import ablation, view
from tvmscope.report.sections import summary as _summary
from tvmscope.report.sections.view import ResultLine
from tvmscope.report.terminal import explain

_STYLES = {
    "faster": "green",
    "slower": "red",
    "undecided": "yellow",
    "ok": "green",
    "wrong": "bold red",
    "failed": "red",
    "interrupted": "yellow",
    "unavailable": "dim",
}
_STEPS = (
    *((width, ()) for width in (24, 16, 8)),
    (8, ("mean",)),
    (8, ("mean", "clock")),
    *((0, ("mean", "clock", "bar", "memory", "interval", "error")[:n]) for n in range(3, 7)),
)
"""The reductions for a narrow terminal, step by step: the bar's width, then whole columns."""
TEXT_WIDTH = 120
_FINDINGS = 3


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, in eighths of a character if the terminal can show them."""

    fraction: float
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width, options.max_width)
        if options.ascii_only:
            yield Text("#" * max(1, round(self.fraction * width)), style="cyan")
            return
        full, eighths = divmod(max(1, round(self.fraction * width * 8)), 8)
        yield Text("█" * full + " ▏▎▍▌▋▊▉"[eighths].strip(), style="cyan")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Width:
        return Width(1, self.width)


@dataclass(frozen=True)
class Column:
    """A column of the table, with a cell per row."""

    key: str
    title: str
    cells: Sequence[RenderableType]
    justify: JustifyMethod = "left"


@dataclass(frozen=True)
class SessionView:
    """One session: header, table, failures, warnings, environment."""

    session: Session
    percentiles: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        session = self.session
        title = Text(clean(session.model.name, NAME_LIMIT), style="bold")
        for part in view.header(session):
            style = "yellow" if part == _("RANDOM weights") else ""
            title.append(" · ", style="dim").append(clean(part), style=style)
        yield title
        if failure := view.failure(session):
            yield Text(clean(failure), style="red")
        rows = view.measured(session)
        if rows:
            yield self._table(rows, console, options)
        yield ablation.render(session)
        yield from (Text(clean(line), style="bold") for line in view.headlines(session))
        yield from _findings(session)
        if session.fixes:
            yield explain.fixes(session.fixes)
        yield from _trouble(view.unmeasured(session), several=len(view.targets(session)) > 1)
        yield from _remarks(session)
        yield Text(clean(view.environment(session), 600), style="dim")

    def _table(self, rows: list[ResultLine], console: Console, options: ConsoleOptions) -> Table:
        """Return as many columns as fit; names and medians always stay."""
        unbounded = options.update(max_width=10_000)
        for bar_width, dropped in _STEPS:
            columns = self._columns(rows, bar_width)
            table = _draw([c for c in columns if c.key not in dropped])
            if Width.get(console, unbounded, table).maximum <= options.max_width:
                break
        return table

    def _columns(self, rows: list[ResultLine], bar_width: int) -> Iterator[Column]:
        yield Column("backend", _("backend"), [_name(r) for r in rows])
        if len({r.result.task.target for r in rows}) > 1:
            cells = [Text(clean(r.result.task.target, NAME_LIMIT)) for r in rows]
            yield Column("target", _("target"), cells)
        medians = [Text(r.median, style="bold") for r in rows]
        yield Column("median", _("median"), medians, "right")
        intervals = [Text(r.interval, style="dim") for r in rows]
        yield Column("interval", _("95 % interval"), intervals, "right")
        means = [Text(r.mean, style="dim") for r in rows]
        yield Column("mean", _("mean ± deviation"), means, "right")
        if any(r.rate for r in rows):
            yield Column("rate", _("items/s"), [Text(r.rate) for r in rows], "right")
        if any(r.clock for r in rows):
            clocks = [Text(r.clock or "-", style="dim") for r in rows]
            yield Column("clock", _("GPU clock"), clocks, "right")
        for p in self.percentiles:
            yield Column(p, p, [Text(r.percentile(p)) for r in rows], "right")
        log = is_log(r.median_s for r in rows if r.median_s)
        bars = [Bar(fraction(r.median_s or 0.0, rows), bar_width) for r in rows]
        yield Column("bar", _("time (log)") if log else _("time"), bars)
        if any(r.versus for r in rows):
            yield Column("versus", view.versus_title(rows), [_versus(r) for r in rows])
        yield Column("error", _("error"), [_accuracy(r) for r in rows], "right")
        yield Column("memory", _("memory"), [Text(r.memory) for r in rows], "right")


def _draw(columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column.title, justify=column.justify, no_wrap=True)
    for cells in zip(*(c.cells for c in columns), strict=True):
        table.add_row(*cells)
    return table


def _accuracy(row: ResultLine) -> Text:
    return Text(row.accuracy, style="" if row.passed else "bold red")


def _name(row: ResultLine) -> Text:
    return Text(row.name, style="bold cyan" if row.is_own else "")


def _versus(row: ResultLine) -> Text:
    if row.versus is None:
        return Text("")
    style = _STYLES.get(row.versus.verdict, "")
    return Text(row.speedup + " ", style=style).append(row.verdict, style=style)


def _trouble(rows: Sequence[ResultLine], *, several: bool) -> Iterator[Text]:
    """Yield the rows that are not in the table, each with its reason."""
    for row in rows:
        status = row.result.status
        line = Text(f"  {row.name}")
        if several:
            line.append(f" @ {clean(row.result.task.target, NAME_LIMIT)}", style="dim")
        line.append(f" {_(status)}", style=_STYLES[status])
        if row.median_s is not None:
            line.append(f" ({row.median})", style="dim")
        yield line.append(f": {clean(row.reason)}" if row.reason else "")


def _findings(session: Session) -> Iterator[Text]:
    """Yield the most valuable findings, in a line each."""
    found = [f for f in session.findings if f.severity != "info"]
    for finding in found[:_FINDINGS]:
        line = Text("→ ", style="cyan").append(clean(finding.title, 100))
        if finding.saving_s:
            line.append(_(": about {time}").format(time=format_s(finding.saving_s)), style="bold")
        yield line.append(f" [{clean(finding.rule, NAME_LIMIT)}]", style="dim")
    if found:
        text = plural("{n} finding", "{n} findings", len(found)).format(n=len(found))
        yield Text(_("{findings}; tvmscope explain lists them").format(findings=text), "dim")


def _remarks(session: Session) -> Iterator[Text]:
    for note in view.notes(session):
        yield Text(f"  {clean(note)}", style="dim")
    for warning in view.warnings(session):
        yield Text(_("warning: "), style="yellow").append(clean(warning))


def summary(sessions: Sequence[Session]) -> RenderableType:
    """Return one row per model: its outcome, its fastest backend, tvmscope and its best peer."""
    lines = [_summary.summarize(s) for s in sessions]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in (_("model"), _("status"), _("tvmscope"), _("fastest"), _("against the best peer")):
        table.add_column(name, overflow="fold")
    for line in lines:
        last = Text(line.speedup + " ", style=_STYLES.get(line.verdict, "")).append(line.verdict)
        table.add_row(
            Text(clean(line.model, NAME_LIMIT), style="bold"),
            Text(_(line.status), style=_STYLES[line.status]),
            Text(line.own),
            Text(clean(line.fastest)),
            last if line.speedup else Text(clean(line.reason, 120), style="red"),
        )
    mean = _summary.geometric_mean(lines)
    return Group(table, Text(mean, style="bold")) if mean else table


def render(session: Session, percentiles: tuple[str, ...] = ()) -> RenderableType:
    """Return a session that rich can print."""
    return SessionView(session, percentiles)


def render_all(sessions: Sequence[Session], percentiles: tuple[str, ...] = ()) -> RenderableType:
    """Return every session, and their summary if there are several."""
    views: list[RenderableType] = []
    for session in sessions:
        views += [render(session, percentiles), Text("")]
    return Group(*views[:-1]) if len(sessions) == 1 else Group(*views, summary(sessions))


def to_text(sessions: Sequence[Session], width: int = TEXT_WIDTH) -> str:
    """Return the same without colours, at a fixed width."""
    stream = StringIO()
    console = Console(file=stream, width=width, color_system=None, force_terminal=False)
    console.print(render_all(sessions))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


RENDERER = Renderer("console", ".txt", to_text)


def fraction(value_s: float, rows: Iterable[ResultLine]) -> float:
    """Return a bar's length in 0..1: proportional to time, logarithmic for very different rows."""
    times = [r.median_s for r in rows if r.median_s]
    low, high = min(times), max(times)
    if is_log(times):
        return math.log1p(value_s / low) / math.log1p(high / low)
    return value_s / high


def is_log(times: Iterable[float]) -> bool:
    """Whether bars of these times are drawn on a logarithmic scale."""
    values = list(times)
    return bool(values) and max(values) > view.LOG_RATIO * min(values)
