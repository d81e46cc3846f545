"""Renders tables of a tuning run for the terminal: what is worth tuning, and the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.core.session import Session
from tvmscope.core.tuning import TunedTask, gist
from tvmscope.messages import _, plural
from tvmscope.quantities import format_s
from tvmscope.report.escape import clean
from tvmscope.report.sections.charts import percent
from tvmscope.report.sections.tuning import WORK, TaskRow, searched


def plan(session: Session) -> RenderableType:
    """Render what a search would do, and which tasks it would skip."""
    wanted = [t for t in session.tuning if not t.note]
    table = _table(
        _("task"),
        _("calls"),
        _("time"),
        _("share"),
        _("of roof"),
        _("headroom"),
        _("gain/min"),
        _("to try"),
    )
    for task in wanted:
        table.add_row(
            TaskRow(task).name,
            str(task.calls),
            format_s(task.total_s or None),
            percent(task.share if task.total_s else None),
            percent(task.roof_share),
            format_s(task.headroom_s if task.total_s else None),
            format_s(task.expected_per_minute_s),
            _candidates(task),
        )
    left = [t for t in session.tuning if t.note]
    count = plural("{n} task would be tuned", "{n} tasks would be tuned", len(wanted))
    return Group(table, Text(count.format(n=len(wanted))), *_left_alone(left))


def _candidates(task: TunedTask) -> str:
    if task.candidates <= 1:
        return "MetaSchedule"
    return f"{task.candidates - task.earlier}/{task.candidates}"


def _left_alone(tasks: Sequence[TunedTask]) -> list[Text]:
    """Return the tasks that are not tuned, by reason; many small ones share a line."""
    by_reason: dict[str, list[TunedTask]] = {}
    for task in tasks:
        by_reason.setdefault(gist(task.note), []).append(task)
    lines = []
    for reason, members in by_reason.items():
        share = percent(sum(t.share for t in members))
        named = ", ".join(clean(t.kernel, 40) for t in members[:3])
        more = "" if len(members) <= 3 else " ..."
        lines.append(
            Text(
                _("not tuned, {reason}: {n}, {share} of the time ({names}{more})").format(
                    reason=clean(reason), n=len(members), share=share, names=named, more=more
                ),
                style="dim",
            )
        )
    return lines


def summary(session: Session) -> RenderableType:
    """Render the trials and the choices, the largest tasks first."""
    table = _table(
        _("task"),
        _("share"),
        _("trials"),
        _("untuned, best"),
        _("used"),
    )
    rows = searched(session)
    if not rows:
        return Text(_("no candidate was tried"))
    for row in rows:
        table.add_row(
            row.name,
            percent(row.task.share),
            row.trials,
            _speeds(row),
            row.used if row.task.speedup is None else f"{row.used}: {row.validated}",
        )
    told = [line for row in rows for line in _explained(row)]
    notes = [Text(_(WORK), style="dim")] if any(row.task.flops for row in rows) else []
    return Group(table, *notes, Text(_totals([row.task for row in rows])), *told)


def _explained(row: TaskRow) -> Iterator[RenderableType]:
    """Describe the choice for a task, and the worth of its parts."""
    if not row.words:
        return
    yield Text("")
    yield Text(row.name, style="bold")
    for sentence in row.words:
        yield Text(f"  {sentence}")
    if row.worth:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="dim")
        for title in (_("part"), _("without it"), _("time becomes")):
            table.add_column(title, overflow="fold")
        for part in row.worth:
            table.add_row(*map(Text, (part.part, part.without, part.factor)))
        yield table


def _speeds(row: TaskRow) -> str:
    """Return both speeds, with their unit once."""
    unit = " GFLOP/s"
    if row.untuned.endswith(unit):
        return f"{row.untuned.removesuffix(unit)}, {row.best}"
    return f"{row.untuned}, {row.best}"


def _totals(tasks: Sequence[TunedTask]) -> str:
    return _(
        "{trials} trials in this run, {earlier} in earlier ones; {failed} failed, {wrong} wrong; "
        "{used} of {tasks} tasks use a tuned kernel"
    ).format(
        trials=sum(t.trials for t in tasks),
        earlier=sum(t.earlier for t in tasks),
        failed=sum(t.failed for t in tasks),
        wrong=sum(t.wrong for t in tasks),
        used=sum(t.chosen is not None for t in tasks),
        tasks=len(tasks),
    )


def _table(first: str, *others: str) -> Table:
    # In a narrow terminal a task takes several lines, so that its numbers are complete.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold")
    for name in others:
        if name == _("used"):
            table.add_column(name)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
