"""The attempted fixes, as plain text: renderers differ only in how they draw the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvmscope.core.diagnosis.findings import CLOSE, Attempt, hits
from tvmscope.messages import _, plural
from tvmscope.quantities import format_s
from tvmscope.report.escape import clean
from tvmscope.report.sections.view import span


@dataclass(frozen=True)
class AttemptLine:
    """One attempt; every text is safe to show."""

    title: str
    rule: str
    settings: str
    predicted: str
    achieved: str
    interval: str
    outcome: str
    reason: str
    kept: bool


def head() -> tuple[str, ...]:
    """Return the titles over `cells`."""
    return (_("fix"), _("setting"), _("predicted"), _("achieved"), _("95 % interval"), _("outcome"))


def cells(row: AttemptLine) -> tuple[str, ...]:
    """Return a row's cells under `head`."""
    outcome = f"{row.outcome}: {row.reason}" if row.reason else row.outcome
    return row.title, row.settings, row.predicted, row.achieved, row.interval, outcome


def rows(attempts: Sequence[Attempt]) -> list[AttemptLine]:
    """Return the rows in the order of the attempts."""
    return [_row(attempt) for attempt in attempts]


def _row(attempt: Attempt) -> AttemptLine:
    words = {"open": _("not finished"), "kept": _("kept"), "reverted": _("reverted")}
    return AttemptLine(
        title=clean(attempt.title, 60),
        rule=clean(attempt.rule, 60),
        settings=clean(", ".join(f"{k} = {_value(v)}" for k, v in attempt.fix.items()), 80),
        predicted=format_s(attempt.predicted_s),
        achieved=_time(attempt.achieved_s),
        interval=_interval(attempt.ci95_s),
        outcome=words[attempt.outcome],
        reason=clean(attempt.reason, 160),
        kept=attempt.outcome == "kept",
    )


def _value(value: object) -> str:
    """Return a setting's text; an empty list of passes is also a setting."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or _("none")
    return str(value)


def _time(seconds: float | None) -> str:
    """Format a saving; a loss has a sign."""
    if seconds is None or seconds >= 0:
        return format_s(seconds)
    return "−" + format_s(-seconds)


def _interval(limits: tuple[float, float] | None) -> str:
    if limits is None:
        return "-"
    low, high = map(_time, limits)
    return span(low, high) if limits[0] >= 0 else _("{low} to {high}").format(low=low, high=high)


def calibration(attempts: Sequence[Attempt]) -> str:
    """Say how good the predictions of measured fixes were; empty without any."""
    close, count = hits(attempts)
    if not count:
        return ""
    text = plural(
        "of {count} fix tried, {close} was predicted within {limit:.0%}",
        "of {count} fixes tried, {close} were predicted within {limit:.0%}",
        count,
    )
    return text.format(count=count, close=close, limit=CLOSE)
