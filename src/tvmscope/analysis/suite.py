"""Sums up the rows of a suite: outcomes, speed-ups, and what moved since an earlier run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import mean, median
from typing import Literal

from tvmscope.core.suite import OUTCOMES, Outcome, SuiteRow
from tvmscope.messages import marked

OVER = (1.0, 1.5, 2.0)
"""Speed-ups whose share is counted."""
BINS = (0.0, 0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 1.5, 2.0, 4.0)
"""The lower ends of the distribution's bins; the last bin has no upper end."""
CLEAR = 0.1
"""A ratio of ratios from two runs has no interval: only a change of a tenth is called."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """Ours against one backend, over the problems that both got right."""

    backend: str
    problems: int
    mean: float
    """Geometric."""
    median: float
    low: float
    high: float
    over: dict[float, float]
    """The share of ALL problems of the suite that are right and faster by more than the factor."""
    bins: tuple[int, ...]
    """How many problems are in each bin of `BINS`."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A suite as a whole."""

    problems: int
    outcomes: dict[Outcome, int]
    with_fallback: int
    """Problems that are right with some operators in their framework."""
    against: tuple[Against, ...]
    slowest: tuple[SuiteRow, ...]
    """The problems furthest behind another backend, the worst first."""
    hosts: tuple[str, ...]
    took_s: float

    @property
    def right(self) -> int:
        """Problems whose results are right."""
        return self.outcomes["correct"] + self.outcomes["noise"]


def summarize(rows: Sequence[SuiteRow], top: int = 20) -> Summary:
    """Return the summary of a suite's rows; each speed-up is of one host, measured in turns."""
    counts = Counter(row.outcome for row in rows)
    right = [row for row in rows if row.is_right]
    names = sorted({name for row in right for name in row.speedups})
    behind = [row for row in right if row.slowest_ratio is not None and row.slowest_ratio < 1.0]
    return Summary(
        problems=len(rows),
        outcomes={outcome: counts.get(outcome, 0) for outcome in OUTCOMES},
        with_fallback=sum(bool(row.fallbacks) for row in right),
        against=tuple(_against(name, right, len(rows)) for name in names),
        slowest=tuple(sorted(behind, key=lambda row: row.slowest_ratio or 1.0)[:top]),
        hosts=tuple(sorted({row.host for row in rows})),
        took_s=sum(row.took_s for row in rows),
    )


def _against(backend: str, right: Iterable[SuiteRow], problems: int) -> Against:
    values = sorted(row.speedups[backend].value for row in right if backend in row.speedups)
    edges = (*BINS, float("inf"))
    bins = [sum(a <= v < b for v in values) for a, b in pairwise(edges)]
    return Against(
        backend=backend,
        problems=len(values),
        mean=exp(mean(map(log, values))),
        median=median(values),
        low=values[0],
        high=values[-1],
        over={factor: sum(v > factor for v in values) / problems for factor in OVER},
        bins=tuple(bins),
    )


Kind = Literal["new", "gone", "outcome", "faster", "slower"]
_SAID = marked("new"), marked("gone"), marked("outcome"), marked("faster"), marked("slower")
"""For translators: `messages.word` says them."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A problem whose row differs from the earlier one."""

    problem: str
    kind: Kind
    before: str | None
    after: str | None
    against: str | None = None
    """The backend that both runs measured in turns with ours; it represents the machine's speed."""
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class Moves:
    """The changes, and how many problems could not be compared in speed."""

    moves: tuple[Move, ...]
    compared: int
    other_hosts: int
    """Right both times, but measured on another machine: a comparison never mixes hosts."""


def moves(old: Sequence[SuiteRow], new: Sequence[SuiteRow]) -> Moves:
    """Outcomes that changed, and speeds that changed relative to a backend that both measured."""
    before, found = {row.problem: row for row in old}, list[Move]()
    compared = other_hosts = 0
    for row in new:
        was = before.pop(row.problem, None)
        if was is None:
            found.append(Move(problem=row.problem, kind="new", before=None, after=row.outcome))
        elif was.outcome != row.outcome:
            found.append(
                Move(problem=row.problem, kind="outcome", before=was.outcome, after=row.outcome)
            )
        elif row.is_right and (was.host, was.cpu) != (row.host, row.cpu):
            other_hosts += 1
        elif row.is_right:
            compared += 1
            found += _speed_moves(was, row)
    found += [Move(problem=n, kind="gone", before=r.outcome, after=None) for n, r in before.items()]
    return Moves(moves=tuple(found), compared=compared, other_hosts=other_hosts)


def _speed_moves(was: SuiteRow, row: SuiteRow) -> list[Move]:
    """Through the first backend that both have; at most one line per problem."""
    for name in row.speedups:
        if name not in was.speedups:
            continue
        a, b = was.speedups[name].value, row.speedups[name].value
        if abs(log(b / a)) <= log(1 + CLEAR):
            return []
        kind: Kind = "faster" if b > a else "slower"
        return [
            Move(
                problem=row.problem,
                kind=kind,
                before=f"{a:.2f}x",
                after=f"{b:.2f}x",
                against=name,
                ratio=b / a,
            )
        ]
    return []
