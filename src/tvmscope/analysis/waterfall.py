"""Splits the difference to the fastest profiled backend into operators and host time.

Both sides are split in the same way. A plain run is the sum over its kernels, plus the measured
time between them, minus the profiler's overhead; the remainder is unexplained. Where a GPU's clock
has measured plain runs, the time between kernels is that of a plain run, without any overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.analysis.alignment import groups
from tvmscope.core import stats
from tvmscope.core.profile import Profile
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session
from tvmscope.messages import Text, msg

Kind = Literal["operator", "host", "gap", "overlap", "layout", "overhead", "unexplained"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A part of the difference; positive where ours takes longer."""

    label: Text
    kind: Kind
    delta_s: float
    source_ops: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Waterfall:
    """The steps from their time to ours: `theirs_s` plus all bars is `ours_s`."""

    ours: RowKey
    theirs: RowKey
    ours_s: float
    theirs_s: float
    bars: tuple[Bar, ...]
    beside: tuple[tuple[RowKey, float], ...] = ()
    """Rows of the same target and precision that have no profile, with their medians."""


def waterfall(session: Session) -> Waterfall | None:
    """Our fastest profiled row against the fastest other one; None where one is missing.

    They run on the same target in the same precision, and both have passed verification.
    """
    rows = [p for p in session.profiles if _passed(session, p)]
    own = [p for p in rows if p.key.is_ours]
    for ours in sorted(own, key=lambda p: p.end_to_end_s):
        peers = [p for p in rows if not p.key.is_ours and p.key.group == ours.key.group]
        if peers:
            return _between(session, ours, min(peers, key=lambda p: p.end_to_end_s))
    return None


def _between(session: Session, ours: Profile, theirs: Profile) -> Waterfall:
    bars = [
        *_operators(ours, theirs),
        Bar(
            label=msg("layout changes"), kind="layout", delta_s=_layout_s(ours) - _layout_s(theirs)
        ),
        *_beside_kernels(ours, theirs),
    ]
    gap = ours.end_to_end_s - theirs.end_to_end_s
    rest = gap - sum(bar.delta_s for bar in bars)
    return Waterfall(
        ours=ours.key,
        theirs=theirs.key,
        ours_s=ours.end_to_end_s,
        theirs_s=theirs.end_to_end_s,
        bars=(*bars, Bar(label=msg("unexplained"), kind="unexplained", delta_s=rest)),
        beside=_beside(session, ours),
    )


def _operators(ours: Profile, theirs: Profile) -> list[Bar]:
    """Return a bar per group of source operators, the largest loss first.

    Kernels of unknown origin get no bar: their time ends up in what is unexplained.
    """
    pairs = ((p.key, k) for p in (ours, theirs) for k in p.kernels if k.kind != "layout")
    bars = [
        Bar(
            label=_label(group.source_ops),
            kind="operator",
            delta_s=group.times_s.get(ours.key, 0.0) - group.times_s.get(theirs.key, 0.0),
            source_ops=group.source_ops,
        )
        for group in groups(pairs)
        if group.source_ops
    ]
    return sorted(bars, key=lambda bar: -bar.delta_s)


def _label(source_ops: tuple[str, ...]) -> str:
    more = len(source_ops) - 1
    return f"{source_ops[0]} + {more}" if more else source_ops[0]


def _layout_s(profile: Profile) -> float:
    return sum(k.total_s for k in profile.kernels if k.kind == "layout")


def _beside_kernels(ours: Profile, theirs: Profile) -> list[Bar]:
    """Return one bar, and the profiler's overhead; with a GPU's own time stamps: gaps, overlaps,
    and the call around them."""
    overhead = Bar(
        label=msg("profiler overhead"),
        kind="overhead",
        delta_s=theirs.overhead_s - ours.overhead_s,
    )
    a, b = ours.device, theirs.device
    if a is None or b is None:
        host_s = _host_s(ours) - _host_s(theirs)
        return [Bar(label=msg("between kernels"), kind="host", delta_s=host_s), overhead]
    gaps, edges, rest = (a.gap_s, b.gap_s), (a.edge_s, b.edge_s), [overhead]
    if ours.plain is not None and theirs.plain is not None:
        (gaps, edges), rest = zip(ours.plain, theirs.plain, strict=True), []
    return [
        Bar(label=msg("launch gaps"), kind="gap", delta_s=gaps[0] - gaps[1]),
        Bar(label=msg("kernels that overlap"), kind="overlap", delta_s=b.overlap_s - a.overlap_s),
        Bar(label=msg("before and after all kernels"), kind="host", delta_s=edges[0] - edges[1]),
        *rest,
    ]


def _host_s(profile: Profile) -> float:
    """Return the host time; time that no instrument measured stays unexplained."""
    return profile.host_s or 0.0


def _beside(session: Session, ours: Profile) -> tuple[tuple[RowKey, float], ...]:
    profiled = {p.key for p in session.profiles}
    return tuple(
        (row.key, stats.median_s(row.measurement))
        for row in session.results
        if row.status == "ok" and row.measurement is not None and row.measurement.values_s
        if row.key.group == ours.key.group and row.key not in profiled
    )


def _passed(session: Session, profile: Profile) -> bool:
    row = session.result_of(profile)
    return row is None or row.status == "ok"
