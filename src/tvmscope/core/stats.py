"""Statistics of raw timings: summaries, ratios with intervals, and drift."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import hypot
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tvmscope.core.measurement import Measurement

Floats = npt.NDArray[np.float64]
Rounds = Sequence[Sequence[float]]

# A percentile needs runs beyond it: with 64 single runs the 90th percentile, and with 662 the 99th,
# is below the largest observed value with a probability over 99.8 %.
P90_SAMPLES = 64
P99_SAMPLES = 662
_RESAMPLES = 2000
_SEED = 20240229
# Two-sided 95 % quantiles of Student's t with n - 1 degrees of freedom, for n pairs.
_T95 = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764}
_WILCOXON_MIN = 6  # the smallest n whose signed-rank test can reach 5 % at all
DRIFT = 0.02


class RatioInterval(NamedTuple):
    """A ratio of times over rounds; the limits are None if there is only one round."""

    ratio: float
    lo: float | None
    hi: float | None
    smallest_detectable: float | None
    """The smallest relative difference whose interval would have excluded 1."""


def median_s(m: Measurement) -> float:
    """Return the headline value: the median over all values."""
    return float(np.median(m.values_s))


def spread(m: Measurement) -> float:
    """Return the interquartile range over the median."""
    low, middle, high = np.percentile(m.values_s, (25, 50, 75))
    return float((high - low) / middle)


def cov(m: Measurement) -> float | None:
    """Return the coefficient of variation; None for a single value."""
    values = np.asarray(m.values_s)
    return float(values.std(ddof=1) / values.mean()) if values.size > 1 else None


def summary(m: Measurement) -> dict[str, Any]:
    """Return the derived numbers of a row; None for those that need more values."""
    values = np.asarray(m.values_s)
    if values.size == 0:
        raise ValueError("a measurement without values has no summary")
    singles = values.size if m.loops == 1 else 0
    interval = median_interval(m.rounds_s)
    return {
        "median_s": float(np.median(values)),
        "mean_s": float(values.mean()),
        "std_s": float(values.std(ddof=1)) if values.size > 1 else None,
        "ci95_s": None if interval is None else list(interval),
        "samples": int(values.size),
        "p90_s": float(np.percentile(values, 90)) if singles >= P90_SAMPLES else None,
        "p99_s": float(np.percentile(values, 99)) if singles >= P99_SAMPLES else None,
        "values_s": values.tolist(),
    }


@dataclass(frozen=True, kw_only=True)
class Moments:
    """The mean, the median and the standard deviation of a row's single times."""

    mean_s: float
    median_s: float
    std_s: float | None
    """None for a single time."""
    samples: int


def moments(m: Measurement) -> Moments:
    """Return the moments of a measurement."""
    found = summary(m)
    return Moments(**{name: found[name] for name in ("mean_s", "median_s", "std_s", "samples")})


def median_interval(rounds: Rounds) -> tuple[float, float] | None:
    """Return the bootstrap 95 % interval of the median: rounds are resampled, then pooled.

    Values of one round share its disturbances, so resampling single values would give an interval
    that is too narrow. For a single round it is the interval between two order statistics, which is
    equivalent to resampling its values.
    """
    groups = [np.asarray(r, dtype=np.float64) for r in rounds if len(r)]
    if len(groups) == 1 and groups[0].size > 1:
        values = np.sort(groups[0])
        reach = 0.98 * values.size**0.5  # 1.96 standard deviations of a binomial with p = 1/2
        first = max(0, int(values.size / 2 - reach))
        return float(values[first]), float(values[-1 - first])
    if len(groups) < 2:
        return None
    low, high = np.percentile(_resampled_medians(groups), (2.5, 97.5))
    return float(low), float(high)


def _resampled_medians(groups: list[Floats]) -> Floats:
    """Return medians of pooled groups, drawn with replacement, by bisection over the sorted values.

    A draw is a count per group; the number of drawn values at or below a position is then one
    product with the groups' cumulative counts, so that no pool is ever built or sorted.
    """
    owner = np.repeat(np.arange(len(groups)), [g.size for g in groups])
    pooled = np.concatenate(groups)
    order = np.argsort(pooled, kind="stable")
    below = np.cumsum(owner[order][None, :] == np.arange(len(groups))[:, None], axis=1)
    rng = np.random.default_rng(_SEED)
    shares = np.full(len(groups), 1 / len(groups))
    draws = rng.multinomial(len(groups), shares, size=_RESAMPLES)
    total = draws @ below[:, -1]
    values = pooled[order]
    lower = values[_position(draws, below, (total + 1) // 2)]
    upper = values[_position(draws, below, total // 2 + 1)]
    return np.asarray((lower + upper) / 2)


def _position(draws: Any, below: Any, rank: Any) -> Any:
    """Return for each draw the first sorted position with at least `rank` drawn values."""
    low = np.zeros(len(draws), dtype=np.int64)
    high = np.full(len(draws), below.shape[1] - 1, dtype=np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        reached = np.einsum("ij,ji->i", draws, below[:, middle]) >= rank
        high, low = np.where(reached, middle, high), np.where(reached, low, middle + 1)
    return low


def ratio_interval(a_rounds: Rounds, b_rounds: Rounds) -> RatioInterval:
    """Return the time of a over the time of b with its 95 % interval, paired by round.

    Each round gives the log of the ratio of its two medians. From six rounds on: the Hodges-Lehmann
    estimate and the exact Wilcoxon signed-rank interval, widened if consecutive rounds are
    correlated; below: Student's t. Entries with different numbers of rounds are paired on the first
    common ones.
    """
    logs = np.array(
        [
            np.log(np.median(a) / np.median(b))
            for a, b in zip(a_rounds, b_rounds, strict=False)
            if len(a) and len(b)
        ]
    )
    if logs.size == 0:
        raise ValueError("no common round to compare")
    if logs.size == 1:
        return RatioInterval(float(np.exp(logs[0])), None, None, None)
    centre, low, high = _wilcoxon(logs) if logs.size >= _WILCOXON_MIN else _student(logs)
    detectable = float(np.expm1(max(high - centre, centre - low)))  # the wider side determines it
    return RatioInterval(float(np.exp(centre)), float(np.exp(low)), float(np.exp(high)), detectable)


def ratio_quotient(a: RatioInterval, b: RatioInterval) -> RatioInterval:
    """Return the quotient of two independent ratios; half-widths of logs add in quadrature."""
    centre = float(np.log(a.ratio / b.ratio))
    widths = []
    for part in (a, b):
        if part.lo is None or part.hi is None:
            return RatioInterval(float(np.exp(centre)), None, None, None)
        widths.append(float(np.log(part.hi / part.lo)) / 2)
    half = hypot(*widths)
    limits = float(np.exp(centre - half)), float(np.exp(centre + half))
    return RatioInterval(float(np.exp(centre)), *limits, float(np.expm1(half)))


def difference_interval(
    a_rounds: Rounds, b_rounds: Rounds
) -> tuple[float, tuple[float, float] | None]:
    """Return the time of a minus that of b and its 95 % interval, paired as in `ratio_interval`."""
    pairs = zip(a_rounds, b_rounds, strict=False)
    found = np.array([np.median(a) - np.median(b) for a, b in pairs if len(a) and len(b)])
    if found.size == 0:
        raise ValueError("no common round to compare")
    if found.size == 1:
        return float(found[0]), None
    centre, low, high = _wilcoxon(found) if found.size >= _WILCOXON_MIN else _student(found)
    return centre, (low, high)


def _student(x: Floats) -> tuple[float, float, float]:
    half = _T95[x.size] * float(x.std(ddof=1)) / float(np.sqrt(x.size))
    return float(x.mean()), float(x.mean()) - half, float(x.mean()) + half


def _wilcoxon(x: Floats) -> tuple[float, float, float]:
    """Return Hodges-Lehmann estimate and signed-rank interval, from the sorted Walsh averages."""
    i, j = np.triu_indices(x.size)
    walsh = np.sort((x[i] + x[j]) / 2)
    k = _signed_rank_cut(x.size)
    centre, widen = float(np.median(walsh)), _dependence(x)
    low, high = float(walsh[k - 1]), float(walsh[walsh.size - k])
    return centre, centre - widen * (centre - low), centre + widen * (high - centre)


def _dependence(x: Floats) -> float:
    """Return how much serial correlation widens an interval: n rounds count as n (1-r) / (1+r).

    The signed-rank test assumes independent rounds. On a busy machine they are not independent: the
    scheduler's placement of a process's threads lasts for seconds, and so for several rounds.
    """
    ranks = np.argsort(np.argsort(x)).astype(np.float64)  # one extreme round must not hide it
    c = ranks - ranks.mean()
    r = float((c[1:] * c[:-1]).sum() / (c * c).sum())
    r = min(max(r, 0.0), 0.9)
    return float(np.sqrt((1 + r) / (1 - r)))


@lru_cache(maxsize=256)
def _signed_rank_cut(n: int) -> int:
    """Return the largest k with P(T < k) <= 2.5 %, T the signed-rank statistic of n values."""
    chance = np.zeros(n * (n + 1) // 2 + 1)
    chance[0] = 1.0
    for rank in range(1, n + 1):  # each rank is positive or negative with equal chance
        moved = np.zeros_like(chance)
        moved[rank:] = chance[:-rank]
        chance = (chance + moved) / 2
    return max(1, int(np.searchsorted(np.cumsum(chance), 0.025, side="right")))


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, the mean for ratios."""
    logs = np.log(np.fromiter(values, dtype=np.float64))
    if logs.size == 0:
        raise ValueError("no values to average")
    return float(np.exp(logs.mean()))


def settled(block_medians: Sequence[float]) -> bool:
    """Whether a warm-up is over: the last two blocks agree with the two before them.

    It is also over if the last four alternate: that is noise, which no warm-up removes.
    """
    last = block_medians[-4:]
    if len(last) < 4:
        return False
    older, newer = last[0] + last[1], last[2] + last[3]
    steps = [b - a for a, b in pairwise(last)]
    trend = all(s < 0 for s in steps) or all(s > 0 for s in steps)
    return abs(newer / older - 1) <= DRIFT or (not trend and len(block_medians) >= 8)
