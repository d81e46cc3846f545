"""Computes what changed between two sessions of one model, relative to a common backend.

Times of different days do not compare: the machine may have been slower. So each row is taken
relative to a backend that both sessions measured in turns with it, and the two ratios are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.analysis.alignment import groups
from tvmscope.core import stats
from tvmscope.core.comparison import Verdict, verdict
from tvmscope.core.measurement import Measurement, Result
from tvmscope.core.profile import Profile
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session
from tvmscope.core.stats import RatioInterval, ratio_interval, ratio_quotient
from tvmscope.core.vision import Sighting
from tvmscope.errors import Incomparable
from tvmscope.messages import Text, msg

CLEAR = 0.1
"""A kernel has no interval, so only a change of a tenth or more is reported."""
WORTH = 0.01
"""A change below this share of the run is not reported either."""
TOP = 20
"""A profile is summarised by this many kernels."""


@dataclass(frozen=True, kw_only=True)
class RowChange:
    """One row before and after; a speed-up over 1 means that it became faster."""

    label: str
    target: str
    before_s: float
    after_s: float
    speedup: float
    ci95: tuple[float, float] | None
    verdict: Verdict
    through: str | None
    """The backend that represents the machine's speed; None if the sessions share none."""
    ours: bool = True
    """See `Variant.is_ours`."""
    spreads: tuple[stats.Moments, stats.Moments] | None = None
    """Mean, median and spread of the times before and after."""


@dataclass(frozen=True, kw_only=True)
class PartChange:
    """A kernel, or a group of source operators, of one row before and after."""

    label: str
    names: tuple[str, ...]
    before_s: float | None
    after_s: float | None
    """The time at the machine's earlier speed; None if the part is new or gone."""
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Everything that a comparison of two sessions shows."""

    rows: tuple[RowChange, ...]
    operators: tuple[PartChange, ...] = ()
    kernels: tuple[PartChange, ...] = ()
    left: tuple[str, ...] = ()
    entered: tuple[str, ...] = ()
    """Kernels that are among the `TOP` longest only before, and only after."""
    sightings: tuple[Sighting, ...] = ()
    warnings: tuple[Text, ...] = ()
    problem: Text | None = None
    """Why the second does not compute what the first does; then there are no rows."""


def changes(before: Session, after: Session) -> Changes:
    """Compare rows, operators and kernels; raise if the sessions cannot be compared."""
    _check(before, after)
    rows, operators, kernels = [], [], []
    for old, new in _common(before, after):
        through = _anchor(before, after, old)
        rows.append(_row(old, new, through))
        profiles = [_profile(before, old), _profile(after, new)]
        if profiles[0] is not None and profiles[1] is not None and old.key.is_ours:
            slower = _speed(through)
            operators += _operators(profiles[0], profiles[1], slower)
            kernels += _kernels(profiles[0], profiles[1], slower)
    if not rows:
        raise Incomparable(msg("no row was measured and verified in both sessions"))
    return Changes(rows=tuple(rows), operators=tuple(operators), kernels=tuple(kernels))


def kernel_changes(before: Profile, after: Profile) -> Changes:
    """Compare two profiles of one machine and hour: operators, kernels, and the longest ones."""
    tops = [_top(profile) for profile in (before, after)]
    return Changes(
        rows=(),
        operators=tuple(_operators(before, after, 1.0)),
        kernels=tuple(_kernels(before, after, 1.0)),
        left=tuple(name for name in tops[0] if name not in tops[1]),
        entered=tuple(name for name in tops[1] if name not in tops[0]),
    )


def _top(profile: Profile) -> list[str]:
    times: dict[str, float] = {}
    for kernel in profile.kernels:
        times[kernel.name] = times.get(kernel.name, 0.0) + kernel.total_s
    return sorted(times, key=lambda name: -times[name])[:TOP]


def _check(before: Session, after: Session) -> None:
    a, b = before.environment, after.environment
    checks = [
        (msg("CPU"), a.cpu, b.cpu),
        (msg("CPU features"), sorted(a.cpu_features), sorted(b.cpu_features)),
        (msg("cores"), a.cores, b.cores),
        (msg("threads"), a.threads, b.threads),
        (msg("GPU"), a.gpu, b.gpu),
        (msg("model"), before.model.digest, after.model.digest),
        (msg("shapes"), before.model.shapes, after.model.shapes),
    ]
    models = [f"{s.model.name} ({s.model.digest[:12]})" for s in (before, after)]
    for name, left, right in checks:
        if left != right:
            old, new = models if name == "model" else (_short(left), _short(right))
            raise Incomparable(
                msg(
                    "the sessions differ in {what}: {old} and {new}; measure both on one machine, "
                    "with one model",
                    what=name,
                    old=old,
                    new=new,
                )
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _common(before: Session, after: Session) -> list[tuple[Result, Result]]:
    new = {_key(r): r for r in after.results if _usable(r)}
    return [(r, new[_key(r)]) for r in before.results if _usable(r) and _key(r) in new]


def _key(row: Result) -> RowKey:
    return row.key.across_sessions


def _usable(row: Result) -> bool:
    return row.status == "ok" and row.measurement is not None and bool(row.measurement.values_s)


Pair = tuple[Result, Result]


def _anchor(before: Session, after: Session, row: Result) -> Pair | None:
    """Find the other backend with the least noise that ran with the same settings both times."""
    found = [
        (old, new)
        for old, new in _common(before, after)
        if old.task.target == row.task.target
        and not old.key.is_ours
        and _key(old) != _key(row)
        and old.settings == new.settings
    ]
    return min(found, key=lambda p: sum(stats.spread(_times(r)) for r in p), default=None)


def _times(row: Result) -> Measurement:
    assert row.measurement is not None  # `_usable` has checked it
    return row.measurement


def _speed(through: Pair | None) -> float:
    """Return how many times slower the machine became, according to the common backend."""
    if through is None:
        return 1.0
    return stats.median_s(_times(through[1])) / stats.median_s(_times(through[0]))


def _row(old: Result, new: Result, through: Pair | None) -> RowChange:
    before_s, after_s = stats.median_s(_times(old)), stats.median_s(_times(new))
    interval = RatioInterval(before_s / after_s, None, None, None)
    if through is not None:
        interval = ratio_quotient(
            ratio_interval(_times(old).rounds_s, _times(through[0]).rounds_s),
            ratio_interval(_times(new).rounds_s, _times(through[1]).rounds_s),
        )
    lo, hi = interval.lo, interval.hi
    return RowChange(
        label=old.key.name,
        target=old.task.target,
        before_s=before_s,
        after_s=after_s,
        speedup=interval.ratio,
        ci95=(lo, hi) if lo is not None and hi is not None else None,
        verdict=verdict(interval),
        through=through[0].key.name if through else None,
        ours=old.key.is_ours,
        spreads=(stats.moments(_times(old)), stats.moments(_times(new))),
    )


def _profile(session: Session, row: Result) -> Profile | None:
    return next((p for p in session.profiles if p.key == row.key), None)


def _operators(before: Profile, after: Profile, slower: float) -> list[PartChange]:
    pairs = [("before", k) for k in before.kernels] + [("after", k) for k in after.kernels]
    parts = []
    for group in groups(pairs):
        if group.source_ops:
            more = len(group.source_ops) - 1
            label = f"{group.source_ops[0]} + {more}" if more else group.source_ops[0]
            times = group.times_s.get("before"), group.times_s.get("after")
            parts.append(_part(label, group.source_ops, *times, before.end_to_end_s, slower))
    return sorted(parts, key=_size)


def _kernels(before: Profile, after: Profile, slower: float) -> list[PartChange]:
    times: dict[str, dict[str, float]] = {}
    for side, profile in (("before", before), ("after", after)):
        for kernel in profile.kernels:
            spent = times.setdefault(kernel.name, {})
            spent[side] = spent.get(side, 0.0) + kernel.total_s
    parts = (
        _part(name, (name,), t.get("before"), t.get("after"), before.end_to_end_s, slower)
        for name, t in times.items()
    )
    return sorted(parts, key=_size)


def _part(
    label: str,
    names: tuple[str, ...],
    before_s: float | None,
    after_s: float | None,
    run_s: float,
    slower: float,
) -> PartChange:
    scaled = None if after_s is None else after_s / slower
    old, new = before_s or 0.0, scaled or 0.0
    called: Verdict = "undecided"
    if abs(new - old) >= WORTH * run_s and abs(new - old) >= CLEAR * max(old, 1e-12):
        called = "slower" if new > old else "faster"
    return PartChange(
        label=label, names=names, before_s=before_s, after_s=scaled, verdict=called
    )  # fmt: skip


def _size(part: PartChange) -> float:
    return -abs((part.after_s or 0.0) - (part.before_s or 0.0))
