"""Tables of a tuning run for the terminal: what is worth tuning, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.core.session import Session
from tvmscope.core.tuning import TunedTask
from tvmscope.messages import _, plural
from tvmscope.report._charts import percent
from tvmscope.report.escape import clean
from tvmscope.units import format_s

_NAME = 48


def plan(session: Session) -> RenderableType:
    """What a search would do, and what it would leave alone."""
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
            _name(task),
            str(task.calls),
            format_s(task.total_s),
            percent(task.share),
            percent(task.roof_share),
            format_s(task.headroom_s),
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


def _name(task: TunedTask) -> str:
    """Operator and shapes; what has no such name goes by its kernel's."""
    if task.rule is None:
        return clean(task.kernel, _NAME)
    return clean(" ".join(task.workload.split(" ")[:3]), _NAME)


def _left_alone(tasks: Sequence[TunedTask]) -> list[Text]:
    """Those that are not tuned, by the reason; many small ones share a line."""
    by_reason: dict[str, list[TunedTask]] = {}
    for task in tasks:
        by_reason.setdefault(task.note.split(":")[0], []).append(task)
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
    """What was tried and what is used, the largest tasks first."""
    table = _table(
        _("task"),
        _("calls"),
        _("share"),
        _("trials"),
        _("failed"),
        _("untuned"),
        _("best"),
        _("validated"),
        _("used"),
    )
    searched = [t for t in session.tuning if t.trials or t.earlier]
    for task in sorted(searched, key=lambda t: -t.total_s):
        table.add_row(
            _name(task),
            str(task.calls),
            percent(task.share),
            f"{task.trials}" + (f"+{task.earlier}" if task.earlier else ""),
            str(task.failed + task.wrong),
            _speed(task, task.untuned_s),
            _speed(task, task.best_s),
            _validated(task),
            _words(task),
        )
    return Group(table, Text(_totals(searched)))


def _speed(task: TunedTask, seconds: float | None) -> str:
    if seconds is None or task.flops is None:
        return format_s(seconds)
    return f"{task.flops / seconds / 1e9:.1f} GFLOP/s"


def _validated(task: TunedTask) -> str:
    if task.speedup is None or task.interval is None:
        return "-"
    low, high = task.interval
    return f"{task.speedup:.2f}x ({low:.2f}-{high:.2f})"


def _words(task: TunedTask) -> str:
    if task.chosen is None:
        return clean(task.note, _NAME)
    if task.chosen.trace is not None:
        return _("a MetaSchedule trace")
    return clean(", ".join(f"{k}={v}" for k, v in task.chosen.params.items()), _NAME)


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
    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right" if name != _("used") else "left")
    return table
