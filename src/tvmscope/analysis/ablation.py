"""Computes what each optimisation is worth, from rows that switch it off or run it alone.

A row's `Variant.change` says how it was compiled: `without fusion` is everything but fusion, `with
nothing` leaves out all that can be left out, and `only fusion` adds fusion back to that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tvmscope.core import stats
from tvmscope.core.comparison import Comparison, Verdict, compare
from tvmscope.core.measurement import Result
from tvmscope.core.session import Session
from tvmscope.errors import Incomparable
from tvmscope.messages import Text, marked, msg

WITHOUT, ONLY, NOTHING = "without ", "only ", "with nothing"
SAME_CODE = msg("it changes nothing in this model: the code is the same")
Worth = Literal["helps", "hurts", "undecided", "no effect", "one sample", "not measured"]
WORTH_WORDS = (
    marked("helps"), marked("hurts"), marked("undecided"), marked("no effect"),
    marked("one sample"), marked("not measured"),
)  # fmt: skip
_WORTHS: dict[Verdict, Worth] = {"faster": "helps", "slower": "hurts", "undecided": "undecided"}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One optimisation: the run with it compared with the run without it; a factor over 1 helps."""

    name: Text
    direction: Literal["without", "only", "warm-up"]
    with_s: float | None
    without_s: float | None
    factor: float | None
    """Time without it over time with it."""
    ci95: tuple[float, float] | None
    worth: Worth
    reason: Text | None = None
    """Why there is no factor, or what kept it undecided."""


def comparisons(results: Sequence[Result]) -> tuple[Comparison, ...]:
    """Compare the whole with each row that lacks something, and nothing with each row that adds to
    it."""
    found = []
    for pair in _pairs(results):
        try:
            found.append(compare(*pair, across=True, any_threads=True))
        except Incomparable:
            continue  # one of the two was not measured; its row says why
    return tuple(found)


def effects(session: Session) -> tuple[Effect, ...]:
    """Return the effects, the largest first within each direction; empty if the session is no
    ablation."""
    compared = {(c.key, c.against): c for c in session.comparisons}
    every = [
        _effect(faster, slower, compared.get((faster.key, slower.key)))
        for faster, slower in _pairs(session.results)
    ]
    every += [effect for effect in _warm_up(session.results) if every]
    order = ("without", "warm-up", "only")
    return tuple(sorted(every, key=lambda e: (order.index(e.direction), -(e.factor or 0.0))))


def _row(results: Sequence[Result], change: str | None) -> Result | None:
    return next((r for r in results if r.task.variant.change == change), None)


def _pairs(results: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    """Yield pairs of rows: with an optimisation, and without it."""
    whole, nothing = _row(results, None), _row(results, NOTHING)
    for result in results:
        change = result.task.variant.change or ""
        if whole is not None and (change.startswith(WITHOUT) or change == NOTHING):
            yield whole, result
        elif nothing is not None and change.startswith(ONLY):
            yield result, nothing


def _effect(faster: Result, slower: Result, compared: Comparison | None) -> Effect:
    only = (faster.task.variant.change or "").startswith(ONLY)
    changed = faster if only else slower
    change = changed.task.variant.change or ""
    worth: Worth = "no effect" if changed.reason == SAME_CODE else "not measured"
    other = slower if only else faster
    reason: Text = changed.reason or msg("{row} was not measured", row=other.key.name)
    if compared is not None:
        worth, reason = _WORTHS[compared.verdict], ""
        if worth == "undecided" and compared.smallest_detectable is not None:
            seen = compared.smallest_detectable
            reason = msg("{share:.1%} would have been seen", share=seen)
    return Effect(
        name=msg("everything")
        if change == NOTHING
        else change.removeprefix(ONLY).removeprefix(WITHOUT),
        direction="only" if only else "without",
        with_s=_median_s(faster),
        without_s=_median_s(slower),
        factor=None if compared is None else compared.speedup,
        ci95=None if compared is None else compared.ci95,
        worth=worth,
        reason=reason or None,
    )


def _warm_up(results: Sequence[Result]) -> Iterator[Effect]:
    """Compare the first timed run of the whole with its warm ones; a single sample has no interval.

    Loading and the verified run come before it, so code and weights are in memory already.
    """
    whole = _row(results, None)
    warm_s = None if whole is None else _median_s(whole)
    if whole is None or warm_s is None or whole.measurement is None:
        return
    if not whole.measurement.warmups_s:
        return
    first_s = whole.measurement.warmups_s[0]
    yield Effect(
        name=msg("warm-up"),
        direction="warm-up",
        with_s=warm_s,
        without_s=first_s,
        factor=first_s / warm_s,
        ci95=None,
        worth="one sample",
    )


def _median_s(result: Result) -> float | None:
    if result.status != "ok" or result.measurement is None or not result.measurement.values_s:
        return None
    return stats.median_s(result.measurement)
