"""The order in which a rule's own candidates are tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvmscope.core.tuning import Candidate, Params

_EXPLORED = 4
"""Every so many-th candidate is the next of the rule's list, wherever the best one lies."""


def next_of(
    space: Sequence[Candidate], tried: Collection[str], times: Mapping[str, float], count: int
) -> list[Candidate]:
    """Up to `count` candidates that were not tried, the most promising first.

    The rule lists its space in the order of its own model. Once something is measured, those
    that differ least from the fastest go first, with some in the rule's order in between: a
    neighbour of the best is likely good, but the best may also lie elsewhere.
    """
    left = [candidate for candidate in space if candidate.id not in tried]
    measured = {c.id: c.params for c in space if c.id in times}
    if len(measured) < 2:  # the untuned one alone has no params to be a neighbour of
        return left[:count]
    best = measured[min(measured, key=times.__getitem__)]
    near = sorted(left, key=lambda c: distance(c.params, best))  # stable: ties as in the list
    picked: list[Candidate] = []
    while len(picked) < min(count, len(left)):
        source = left if len(picked) % _EXPLORED == _EXPLORED - 1 else near
        picked.append(next(c for c in source if c not in picked))
    return picked


def distance(a: Params, b: Params) -> int:
    """In how many parameters two candidates differ; one that is not named is a value too."""
    return sum(a.get(name) != b.get(name) for name in a.keys() | b.keys())
