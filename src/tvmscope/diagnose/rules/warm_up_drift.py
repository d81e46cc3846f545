"""Rows that were still becoming faster or slower while they were measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.measurement import Result
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import listed
from tvmscope.messages import Text, msg

MUCH = 0.05
_FEWEST = 6


def check(session: Session) -> Iterator[Finding]:
    drifted = [row for row in session.results if has_drifted(row)]
    if not drifted:
        return
    worst = max(drifted, key=lambda row: abs(_drift(row) or 0.0))
    others = [row.task.label for row in drifted if row is not worst]
    yield Finding(
        rule=RULE.id,
        severity="medium",
        effort="minutes",
        title=msg("Times drifted during the measurement"),
        evidence=_evidence(worst, others),
        advice=msg("Measure again on an idle machine, with a longer --duration or more --warmup."),
    )


def _evidence(worst: Result, others: list[str]) -> Text:
    name, most = listed([worst.task.label]), _drift(worst) or 0.0
    if not others:
        return msg(
            "Between the first and the last third of the rounds {worst} changed by {most:+.0%}.",
            worst=name,
            most=most,
        )
    return msg(
        "Between the first and the last third of the rounds {worst} changed by {most:+.0%}, less "
        "so {others}.",
        worst=name,
        most=most,
        others=listed(others),
    )


def has_drifted(row: Result) -> bool:
    """Whether a row's times drifted in one direction, by more than a comparison tolerates."""
    return abs(_drift(row) or 0.0) > MUCH


def _drift(row: Result) -> float | None:
    """Return the relative change from the first third of rounds to the last; None without a trend.

    In a trend the middle third lies in between: noise goes up and down.
    """
    if row.measurement is None:
        return None
    rounds = [median(values) for values in row.measurement.rounds_s if values]
    if len(rounds) < _FEWEST:
        return None
    third = len(rounds) // 3
    first, middle, last = (
        median(part) for part in (rounds[:third], rounds[third:-third], rounds[-third:])
    )
    if not min(first, last) <= middle <= max(first, last):
        return None
    return last / first - 1


RULE = Rule(
    id="warm-up-drift",
    title=msg("Too much drift while measuring"),
    needs=("results",),
    check=check,
)
