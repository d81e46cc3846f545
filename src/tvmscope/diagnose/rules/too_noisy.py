"""Measurements whose spread hides the differences that they should show."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core import stats
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.measurement import Result
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules.warm_up_drift import has_drifted
from tvmscope.diagnose.view import listed
from tvmscope.messages import msg
from tvmscope.quantities import format_s

COARSE = 0.05
"""A comparison that cannot detect five percent answers few questions."""
APART = 0.25
"""Profiles are taken minutes after the measurement; a larger difference has another cause."""
_SPREAD = {"cpu": 0.10, "cuda": 0.025}
"""Limits: interquartile range over median on a CPU, standard deviation over mean on a GPU."""
_ADVICE = msg(
    "Stop what else runs on the machine, fix the clock rate, and measure with a longer --duration."
)


def check(session: Session) -> Iterator[Finding]:
    yield from _comparisons(session)
    yield from _profiles(session)


def _comparisons(session: Session) -> Iterator[Finding]:
    noisy = {r.key: s for r in session.results if (s := _noise(r)) is not None}
    blind = [
        c
        for c in session.comparisons
        if c.verdict == "undecided"
        and (c.smallest_detectable is None or c.smallest_detectable > COARSE)
        and (c.key in noisy or c.against in noisy)
    ]
    if not blind:
        return
    coarsest = max(c.smallest_detectable or 1.0 for c in blind)
    yield Finding(
        rule=RULE.id,
        severity="medium",
        effort="minutes",
        title=msg("The measurement is too noisy to conclude"),
        evidence=msg(
            "{pairs} undecided; differences below {coarsest:.0%} could not have been seen. Spread: "
            "{spread}.",
            pairs=listed(f"{c.key.name} / {c.against.name}" for c in blind),
            coarsest=coarsest,
            spread=listed(f"{key.name} {value:.0%}" for key, value in noisy.items()),
        ),
        advice=_ADVICE,
    )


def _profiles(session: Session) -> Iterator[Finding]:
    """Report profiles from a slow minute: they say little about the run that was measured."""
    apart = []
    for profile in session.profiles:
        row = session.result_of(profile)
        if row is None or row.measurement is None or not row.measurement.values_s:
            continue
        median = stats.median_s(row.measurement)
        if abs(profile.seen_s / median - 1) > APART:
            seen = (profile.key.name, format_s(profile.seen_s), format_s(median))
            apart.append("{} {} / {}".format(*seen))
    if apart:
        yield Finding(
            rule=RULE.id,
            severity="medium",
            effort="minutes",
            title=msg("A profile does not match the measurement"),
            evidence=msg(
                "A run took, while profiling / while measuring: {rows}. Estimates based on such "
                "a profile are unreliable.",
                rows=listed(apart),
            ),
            advice=_ADVICE,
        )


def _noise(row: Result) -> float | None:
    """Return the spread of a row if it exceeds its device's limit and no drift explains it."""
    if row.measurement is None or not row.measurement.values_s or has_drifted(row):
        return None
    device = row.key.device
    value = stats.spread(row.measurement) if device == "cpu" else stats.cov(row.measurement)
    return value if value is not None and value > _SPREAD[device] else None


RULE = Rule(
    id="too-noisy",
    title=msg("Noise too high to conclude"),
    needs=("results",),
    check=check,
)
