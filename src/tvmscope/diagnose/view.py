"""A session as rules see it: the rows to diagnose, each kernel with its loops and its roof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from tvmscope.analysis import roofline
from tvmscope.analysis.alignment import groups
from tvmscope.core import stats
from tvmscope.core.diagnosis.facts import PassFacts
from tvmscope.core.measurement import Result
from tvmscope.core.precision import Precision
from tvmscope.core.profile import DeviceTimes, KernelIR, KernelTime, Profile
from tvmscope.core.row import Device, RowKey
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.messages import Arg, Seconds, Text, msg

HEAVY = 0.01
"""A kernel below this share of the run is not worth a finding."""
_NAME_LIMIT = 48


@dataclass(frozen=True)
class Kernel:
    """A kernel's time, with its loop nest and the least time that the roofs allow."""

    time: KernelTime
    ir: KernelIR | None
    least_s: float | None
    run_s: float

    @property
    def name(self) -> str:
        return self.time.name

    @property
    def total_s(self) -> float:
        return self.time.total_s

    @property
    def share(self) -> float:
        """The share of the whole run."""
        return self.total_s / self.run_s if self.run_s > 0 else 0.0

    @property
    def roof_share(self) -> float | None:
        """The share of the limiting roof that it reaches; None if a number is missing."""
        if self.least_s is None or self.total_s <= 0:
            return None
        return self.least_s / self.total_s

    @property
    def per_call_s(self) -> float:
        return self.total_s / max(self.time.calls, 1)

    @property
    def intensity(self) -> float | None:
        """Flops per byte."""
        if not self.time.flops or not self.time.bytes:
            return None
        return self.time.flops / self.time.bytes

    def after(self, factor: float, reached: float = 1.0) -> float:
        """Return its time if it becomes `factor` times as fast, up to `reached` of its roof."""
        floor = (self.least_s or 0.0) / reached
        return min(self.total_s, max(self.total_s / factor, floor))


@dataclass(frozen=True)
class Subject:
    """A compiled row that is diagnosed."""

    profile: Profile
    row: Result | None
    target: Target | None
    limits: roofline.Limits
    kernels: tuple[Kernel, ...]
    """Kernels in the order of their first call; one kernel may compute several source operators."""
    label: str
    """The row's name if a session has several to diagnose; else empty."""
    passes: tuple[PassFacts, ...] = ()
    """Facts about disabled passes."""
    peers: dict[str, float] = field(default_factory=dict)
    """By source operator: the fastest other backend's time over ours, for its whole group."""

    @property
    def run_s(self) -> float:
        """The time of a plain run, or the kernels' sum if that is larger: shares end at one."""
        return max(self.profile.end_to_end_s, self.profile.total_s)

    @property
    def key(self) -> RowKey:
        return self.profile.key

    @property
    def device(self) -> Device:
        return self.key.device

    @property
    def cores(self) -> int:
        """The threads that a parallel loop can use."""
        if self.row is not None:
            return self.row.task.threads
        return self.target.cores if self.target else 1

    @property
    def disabled(self) -> tuple[str, ...]:
        """The disabled passes."""
        return tuple(dict.fromkeys(x for x in self.setting("disabled_passes").split(",") if x))

    def lacks(self, name: str) -> PassFacts:
        """Return the facts about a disabled pass; little if the session has none."""
        return next((p for p in self.passes if p.name == name), PassFacts(name=name, words=""))

    def left_to(self, rule: str) -> list[str]:
        """Return the disabled passes whose effects a diagnosis rule examines itself."""
        return [name for name in self.disabled if self.lacks(name).finding == rule]

    def setting(self, name: str) -> str:
        """Return a setting with which the row was built or run; empty if it is not set."""
        return ((self.row and self.row.settings) or {}).get(name, "")

    @cached_property
    def heavy(self) -> tuple[Kernel, ...]:
        """The kernels that matter, the longest first; all calls of one kernel are merged."""
        calls: dict[str, list[KernelTime]] = {}
        for kernel in self.kernels:
            calls.setdefault(kernel.name, []).append(kernel.time)
        loops = {k.name: k.ir for k in self.kernels}
        whole = ((_merged(times), loops[name]) for name, times in calls.items())
        found = (Kernel(t, ir, self.limits.least_s(t), self.run_s) for t, ir in whole)
        return tuple(sorted((k for k in found if k.share >= HEAVY), key=lambda k: -k.total_s))

    def lanes(self, bits: int = 32) -> int:
        """Return the values in a vector register."""
        return max(1, (self.target.vector_bits if self.target else 128) // bits)

    def spent(self, kernels: Iterable[Kernel]) -> Text:
        """Format times as `12.3 ms (45 % of the run)`."""
        total = sum(k.total_s for k in kernels)
        share = total / self.run_s if self.run_s > 0 else 0.0
        return msg("{time} ({share:.0%} of the run)", time=Seconds(total), share=share)

    def says(self, text: Text) -> Text:
        """Return the evidence, preceded by the row's name if that is needed."""
        return msg("{row}: {text}", row=self.label, text=text) if self.label else text

    def severity(self, saving_s: float | None) -> str:
        """Return the severity, by the possible saving."""
        share = (saving_s or 0.0) / self.run_s if self.run_s > 0 else 0.0
        return "high" if share >= 0.1 else "medium" if share >= 0.03 else "low"


def subjects(session: Session) -> tuple[Subject, ...]:
    """Return our fastest row of each target and precision; TVM's default pipeline's if none."""
    best: dict[tuple[str, Precision], Profile] = {}
    for profile in sorted(session.profiles, key=_preference):
        if profile.key.is_compiled and not _is_superseded(session, profile):
            best.setdefault(profile.key.group, profile)
    return tuple(_subject(session, p, several=len(best) > 1) for p in best.values())


def about(session: Session, key: RowKey, target: Target) -> Session:
    """Return the session as if this were the only compiled row on its target; peers stay."""

    def stays(other: RowKey) -> bool:
        return not other.is_compiled or other == key

    return replace(
        session,
        targets=(target,),
        results=tuple(r for r in session.results if stays(r.key)),
        profiles=tuple(p for p in session.profiles if stays(p.key)),
    )


def _preference(profile: Profile) -> tuple[bool, float]:
    return not profile.key.is_ours, profile.end_to_end_s


def _is_superseded(session: Session, profile: Profile) -> bool:
    """Whether a fix has replaced this row by another one: then there is no more to say about it."""
    fixed = [p.key for p in session.profiles if p.key.variant.fixed and session.result_of(p)]
    here = [key for key in fixed if key.device == profile.key.device]
    return bool(here) and profile.key not in here


def _at_measured_speed(session: Session, profile: Profile) -> Profile:
    """Scale the profile's times to the speed of the row's measured run if that was faster.

    A profile is a separate run, perhaps in a slower minute; other processes make a run longer,
    never shorter.
    """
    row = session.result_of(profile)
    if row is None or row.measurement is None or profile.end_to_end_s <= 0:
        return profile
    if not row.measurement.values_s:
        return profile
    factor = min(1.0, stats.median_s(row.measurement) / profile.end_to_end_s)
    return replace(
        profile,
        kernels=tuple(replace(k, total_s=k.total_s * factor) for k in profile.kernels),
        end_to_end_s=profile.end_to_end_s * factor,
        profiled_s=profile.profiled_s * factor,
        host_s=None if profile.host_s is None else profile.host_s * factor,
        device=None if profile.device is None else _scaled(profile.device, factor),
    )


def _scaled(times: DeviceTimes, factor: float) -> DeviceTimes:
    return replace(
        times,
        gap_s=times.gap_s * factor,
        edge_s=times.edge_s * factor,
        overlap_s=times.overlap_s * factor,
        plain_s=None if times.plain_s is None else times.plain_s * factor,
    )


def _peers(session: Session, ours: Profile) -> dict[str, float]:
    """Return the fastest profiled peer's times relative to ours, by group of source operators."""
    others = [
        _at_measured_speed(session, p)
        for p in session.profiles
        if not p.key.is_compiled
        and p.key.device == ours.key.device
        and p.key.precision == ours.key.precision
        and ((row := session.result_of(p)) is None or row.status == "ok")
    ]
    if not others:
        return {}
    theirs = min(others, key=lambda p: p.end_to_end_s)
    pairs = [(p.key, k) for p in (ours, theirs) for k in p.kernels]
    return {
        op: group.times_s[theirs.key] / group.times_s[ours.key]
        for group in groups(pairs)
        if group.times_s.get(ours.key) and group.times_s.get(theirs.key)
        for op in group.source_ops
    }


def _subject(session: Session, profile: Profile, *, several: bool) -> Subject:
    profile = _at_measured_speed(session, profile)
    limits = roofline.limits(session, profile)
    run_s = max(profile.end_to_end_s, profile.total_s)
    loops = {ir.name: ir for ir in session.kernel_ir if ir.is_of(profile.key)}
    return Subject(
        profile=profile,
        row=session.result_of(profile),
        target=next((t for t in session.targets if t.label == profile.key.target), None),
        limits=limits,
        kernels=tuple(
            Kernel(k, loops.get(k.name), limits.least_s(k), run_s) for k in profile.kernels
        ),
        label=profile.key.label if several else "",
        passes=session.passes,
        peers=_peers(session, profile),
    )


def _merged(times: list[KernelTime]) -> KernelTime:
    flops, moved = [t.flops for t in times], [t.bytes for t in times]
    return replace(
        times[0],
        source_ops=tuple(dict.fromkeys(op for t in times for op in t.source_ops)),
        calls=sum(t.calls for t in times),
        total_s=sum(t.total_s for t in times),
        flops=None if None in flops else sum(f for f in flops if f is not None),
        bytes=None if None in moved else sum(b for b in moved if b is not None),
    )


def names(kernels: Iterable[Kernel]) -> tuple[str, ...]:
    """Return each kernel's name once, in order."""
    return tuple(dict.fromkeys(k.name for k in kernels))


def sources(kernels: Iterable[Kernel]) -> tuple[str, ...]:
    """Return each source operator once, in order."""
    return tuple(dict.fromkeys(op for k in kernels for op in k.time.source_ops))


def listed(found: Iterable[str], most: int = 3) -> Arg:
    """Format `a, b, c and 4 more` for a message; long names are shortened."""
    items = list(found)
    shown = [x if len(x) <= _NAME_LIMIT else x[: _NAME_LIMIT - 1] + "…" for x in items[:most]]
    rest = len(items) - len(shown)
    return msg("{names} and {count} more", names=shown, count=rest) if rest else shown
