"""Selects which results of one run are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tvmscope.core.comparison import Comparison, compare
from tvmscope.core.measurement import Result
from tvmscope.core.precision import Precision
from tvmscope.core.stats import median_s


def compare_all(results: Sequence[Result]) -> tuple[Comparison, ...]:
    """Our rows against every other verified row of the same target, precision and threads.

    Two rows of ours are compared once, the later one with the earlier. If there is none of ours,
    the fastest row is compared with the others.
    """
    usable = [r for r in results if r.status == "ok" and r.measurement is not None]
    ordered = sorted(usable, key=_group)  # stable: rows keep their order within a group
    return tuple(
        compare(a, b) for _, group in groupby(ordered, key=_group) for a, b in _pairs(list(group))
    )


def _group(result: Result) -> tuple[tuple[str, Precision], int]:
    return result.key.group, result.task.threads


def _pairs(rows: list[Result]) -> list[tuple[Result, Result]]:
    ours = [r for r in rows if r.key.is_ours]
    if not ours:
        first = min(rows, key=_time_s)
        return [(first, other) for other in rows if other is not first]
    others = [r for r in rows if r not in ours]
    return [(row, other) for i, row in enumerate(ours) for other in (*others, *reversed(ours[:i]))]


def _time_s(result: Result) -> float:
    assert result.measurement is not None
    return median_s(result.measurement)
