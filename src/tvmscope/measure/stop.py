"""Decides when enough was measured: by time and precision, never by whether a difference shows."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from tvmscope.core.stats import ratio_interval

PRECISION = 0.01
OVERTIME = 4.0
"""How many times `duration_s` a model that is slow on every backend may take for its rounds."""
FEWEST_ROUNDS = 3

Rounds = Sequence[Sequence[float]]


def enough(
    lanes: Sequence[Rounds],
    used_s: Sequence[float],
    *,
    duration_s: float,
    min_rounds: int,
) -> bool:
    """Whether there are enough rounds; `used_s` is the time that each lane spent in them."""
    rounds = min(len(lane) for lane in lanes)
    used = sum(used_s) / len(used_s)
    if rounds < min_rounds:
        return rounds >= FEWEST_ROUNDS and used >= OVERTIME * duration_s
    return used >= duration_s or (used >= duration_s / 2 and precise(lanes))


def precise(lanes: Sequence[Rounds]) -> bool:
    """Whether every ratio to the fastest lane (or a lone lane's level) is known to about 1 %."""
    if len(lanes) == 1:
        return _narrow(lanes[0], [(1.0,)] * len(lanes[0]))
    fastest = min(lanes, key=lambda lane: min(min(r) for r in lane))
    return all(_narrow(lane, fastest) for lane in lanes if lane is not fastest)


def _narrow(a: Rounds, b: Rounds) -> bool:
    _, low, high, _ = ratio_interval(a, b)
    return low is not None and high is not None and log(high / low) / 2 <= PRECISION
