"""Decides which of two results is faster, by how much, and whether the difference is
significant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.core.measurement import Measurement, Result
from tvmscope.core.row import RowKey
from tvmscope.core.stats import RatioInterval, ratio_interval
from tvmscope.errors import Incomparable
from tvmscope.messages import Text, marked, msg, word

Verdict = Literal["faster", "slower", "undecided"]
_SAID = marked("faster"), marked("slower"), marked("undecided")
"""For translators: `messages.word` shows these words."""

# A smaller difference is not worth a verdict, however certain it is: two builds of the same code
# can differ by as much only because of the placement of their memory.
SMALLEST_EFFECT = 0.02


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The row `key` compared with the row `against`; a speed-up over 1 means `key` is faster."""

    key: RowKey
    against: RowKey
    speedup: float
    ci95: tuple[float, float] | None
    verdict: Verdict
    smallest_detectable: float | None
    """The smallest relative difference that could have been detected; None if none could."""


def compare(a: Result, b: Result, *, across: bool = False, any_threads: bool = False) -> Comparison:
    """Compute how much faster `a` is than `b`: the time of b over the time of a.

    `across` allows different targets and precisions; model, shapes and threads must always match
    (threads only if both run on the same target and `any_threads` is not set).
    """
    first, second = _measured(a), _measured(b)
    _check_identity(a, b, across=across, any_threads=any_threads)
    try:
        interval = ratio_interval(second.rounds_s, first.rounds_s)
    except ValueError as e:
        raise Incomparable(
            msg("{a} and {b}: {reason}", a=a.task.label, b=b.task.label, reason=str(e))
        ) from e
    detectable = interval.smallest_detectable
    return Comparison(
        key=a.key,
        against=b.key,
        speedup=interval.ratio,
        ci95=_limits(interval),
        verdict=verdict(interval),
        smallest_detectable=None if detectable is None else max(detectable, SMALLEST_EFFECT),
    )


def verdict(speedup: RatioInterval) -> Verdict:
    """Return a verdict; it needs an interval that excludes 1 and an effect over 2 %."""
    if speedup.lo is None or speedup.hi is None:
        return "undecided"
    if speedup.lo > 1 and speedup.ratio > 1 + SMALLEST_EFFECT:
        return "faster"
    if speedup.hi < 1 and 1 / speedup.ratio > 1 + SMALLEST_EFFECT:
        return "slower"
    return "undecided"


def _limits(interval: RatioInterval) -> tuple[float, float] | None:
    if interval.lo is None or interval.hi is None:
        return None
    return interval.lo, interval.hi


def _measured(result: Result) -> Measurement:
    """Return the measurement of a result that may be compared: verified, and with values."""
    if result.status != "ok":
        status: Text = msg("'{status}'", status=word(result.status))
        if result.reason:
            status = msg("{status} ({reason})", status=status, reason=result.reason)
        raise Incomparable(
            msg(
                "{row} is {status}: only verified results are compared",
                row=result.task.label,
                status=status,
            )
        )
    if result.measurement is None or not result.measurement.values_s:
        raise Incomparable(msg("{row} was not timed", row=result.task.label))
    return result.measurement


def _check_identity(a: Result, b: Result, *, across: bool, any_threads: bool) -> None:
    x, y = a.task, b.task
    alike = any_threads or x.threads == y.threads or x.target != y.target
    checks = [
        (msg("model"), (x.model, x.digest[:12]), (y.model, y.digest[:12]), x.digest == y.digest),
        (msg("shapes"), x.shapes, y.shapes, x.shapes == y.shapes),
        (msg("threads"), x.threads, y.threads, alike),
        (msg("target"), x.target, y.target, across or x.target == y.target),
        (
            msg("precision"),
            str(x.variant.precision),
            str(y.variant.precision),
            across or x.variant.precision == y.variant.precision,
        ),
    ]
    for name, left, right, same in checks:
        if not same:
            raise Incomparable(
                msg(
                    "{a} and {b} differ in {what}: {left} and {right}; measure both in the same "
                    "way",
                    a=x.label,
                    b=y.label,
                    what=name,
                    left=str(left),
                    right=str(right),
                )
            )
