"""Determines the order in which a rule's own candidates are tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tvmscope.core.tuning import Candidate, Params

_EXPLORED = 4
"""Every candidate with this period is the next of the rule's list, not a neighbour of the best."""


def next_of(
    space: Sequence[Candidate],
    tried: Collection[str],
    times: Mapping[str, float],
    count: int,
    first: Sequence[str] = (),
) -> list[Candidate]:
    """Return up to `count` untried candidates, the most promising first.

    The ids in `first`, which were fast elsewhere, come before all others. The rule lists its space
    in the order of its own model. Once some are measured, those that differ least from the fastest
    go first, with some in the rule's order in between: a neighbour of the best is probably good,
    but the best may also be elsewhere.
    """
    known = {candidate.id: candidate for candidate in space if candidate.id not in tried}
    begin = [known.pop(name) for name in first if name in known][:count]
    return [*begin, *_by_distance(space, list(known.values()), times, count - len(begin))]


def _by_distance(
    space: Sequence[Candidate], left: list[Candidate], times: Mapping[str, float], count: int
) -> list[Candidate]:
    measured = {c.id: c.params for c in space if c.id in times}
    if len(measured) < 2:  # the untuned one alone has no parameters and so no neighbours
        return left[:count]
    best = measured[min(measured, key=times.__getitem__)]
    near = sorted(left, key=lambda c: distance(c.params, best))  # stable: ties as in the list
    picked: list[Candidate] = []
    while len(picked) < min(count, len(left)):
        source = left if len(picked) % _EXPLORED == _EXPLORED - 1 else near
        picked.append(next(c for c in source if c not in picked))
    return picked


def distance(a: Params, b: Params) -> int:
    """Return in how many parameters two candidates differ; a missing one counts as a value."""
    return sum(a.get(name) != b.get(name) for name in a.keys() | b.keys())
