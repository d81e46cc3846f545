"""Computes the numbers behind a profile's figures and tables; renderers only draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tvmscope.analysis.alignment import align
from tvmscope.analysis.moves import located
from tvmscope.analysis.roofline import Limits, Point, limits, points
from tvmscope.analysis.waterfall import Waterfall
from tvmscope.core.profile import KernelIR, KernelTime, Profile, Resources
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session
from tvmscope.cuda import no_matrix
from tvmscope.cuda.config import LIBRARIES
from tvmscope.cuda.library import symbols
from tvmscope.messages import _, msg, plural
from tvmscope.quantities import format_bytes, format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import view

TOP_KERNELS = 20
TOP_GROUPS = 25
MOST_BARS = 12
"""Operator bars of a waterfall; the smaller ones are merged into one bar, so that the figure stays
readable."""
LABEL_LIMIT = 34
STRAY = 0.25
"""Plain runs of the same code in two processes differ by less on an undisturbed machine."""


def si(value: float | None, unit: str) -> str:
    """Format `1.24 GFLOP/s`; a dash if it is not known."""
    if value is None:
        return "-"
    scales = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    scale, prefix = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    return f"{value / scale:.3g} {prefix}{unit}" if value < 1e15 else f"{value:.3g} {unit}"


def device_line(profile: Profile) -> str:
    """Describe how a GPU spent the profiled run; empty if its clock was not read."""
    times = profile.device
    if times is None:
        return ""
    text = _(
        "{launches} launches, {moves}; kernels overlap by {overlap}, gaps between "
        "them {gaps}, before and after them {edges}"
    )
    said = text.format(
        launches=times.launches,
        moves=_moving(profile),
        overlap=format_s(times.overlap_s),
        gaps=format_s(times.gap_s),
        edges=format_s(times.edge_s),
    )
    if profile.waits_s is None:
        return said
    untraced = _(
        "these times contain the profiler's own; in a plain run of {plain} on the device, the "
        "device waits {waits}"
    )
    more = untraced.format(plain=format_s(times.plain_s), waits=format_s(profile.waits_s))
    return "; ".join((said, more))


def _moving(profile: Profile) -> str:
    """Say how many launches only move data, and where they lie, if that is known."""
    found = [k for k in profile.kernels if k.kind == "layout"]
    count, where = sum(k.calls for k in found), located(found)
    if not count or where is None:
        return _("{moves} only move data").format(moves=count)
    text = _("{moves} only move data ({inputs} read inputs, {outputs} write outputs)")
    return text.format(moves=count, inputs=where.inputs, outputs=where.outputs)


def signed(seconds: float) -> str:
    """Format `+1.20 ms` or `−1.20 ms`."""
    if abs(seconds) < 0.5e-9:  # the rounding error of a difference of floats
        return "0"
    return ("−" if seconds < 0 else "+") + format_s(abs(seconds))


def percent(share: float | None) -> str:
    """Format `12 %`, with a decimal below ten."""
    if share is None:
        return "-"
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def launch(taken: Resources | None) -> str:
    """Format `98 x 128`: blocks of threads."""
    return "-" if taken is None else f"{taken.blocks} x {taken.threads}"


def registers(taken: Resources | None) -> str:
    """Format `96` or `255, 48 B spilled`."""
    if taken is None or taken.registers is None:
        return "-"
    if not taken.spilled_bytes:
        return str(taken.registers)
    return _("{registers}, {bytes} spilled").format(
        registers=taken.registers, bytes=format_bytes(taken.spilled_bytes)
    )


def shared(taken: Resources | None) -> str:
    """Format shared memory per block."""
    return format_bytes(None if taken is None else taken.shared_bytes)


def occupancy(taken: Resources | None) -> str:
    """Format the share of a multiprocessor's warps that the blocks fill."""
    return percent(None if taken is None else taken.occupancy)


TAKEN: Mapping[str, Callable[[Resources | None], str]] = {
    msg("blocks x threads"): launch,
    msg("registers"): registers,
    msg("shared memory"): shared,
    msg("occupancy"): occupancy,
}
"""The columns of every table of GPU kernels: what a launch takes of a multiprocessor."""


def matrix(kernel: KernelTime, ir: KernelIR | None) -> str:
    """Return the instruction that multiplies in a GPU kernel, by its code or by its symbol; if its
    code has none, the reason."""
    if ir is not None and ir.code is not None:
        why = no_matrix.reason(ir.code.template)
        return ir.code.matrix or (_("none: {why}").format(why=_(why)) if why else "-")
    if ir is not None and ir.has_fragments:
        return "mma"
    said = symbols.instruction(kernel.symbol or kernel.name)
    if said is None and ir is not None and ir.rule in LIBRARIES:
        return _("a library's kernel, not read")
    return said or "-"


@dataclass(frozen=True)
class KernelRow:
    """A kernel of a profile with its position under the roofs."""

    kernel: KernelTime
    share: float
    """The share of the run without the profiler."""
    point: Point | None
    resources: Resources | None = None
    """On a GPU, what it takes of a multiprocessor."""
    matrix: str = "-"
    """The instruction that multiplies in it, or why there is none."""

    @property
    def name(self) -> str:
        return clean(self.kernel.name)

    @property
    def sources(self) -> str:
        return operators(self.kernel.source_ops, 6)

    @property
    def speed(self) -> str:
        flops = self.kernel.flops
        return si(flops / self.kernel.total_s if flops and self.kernel.total_s else None, "FLOP/s")

    @property
    def roof(self) -> str:
        """`62 % of memory`, or a dash if it is unknown."""
        return "-" if self.point is None else percent(self.point.share)

    @property
    def bound(self) -> str:
        """The limit of the kernel, in a word."""
        words = {"compute": _("arithmetic"), "memory": _("memory"), "neither": _("neither")}
        return "" if self.point is None else words[self.point.bound]


def operators(names: Iterable[str], most: int = 3) -> str:
    """Return source operators in one line, the first few of many."""
    found = [clean(name, 80) for name in names]
    more = len(found) - most
    tail = plural(" and {n} more", " and {n} more", more).format(n=more) if more > 0 else ""
    return ", ".join(found[:most]) + tail


def own_first(session: Session) -> list[Profile]:
    """Return the profiles, ours before the others."""
    return sorted(session.profiles, key=lambda p: not p.key.is_ours)


def kernel_rows(session: Session, profile: Profile) -> list[KernelRow]:
    """Return every kernel of a profile, the longest first."""
    # Of this profile alone: another target may have the same backend and kernel names. A kernel
    # that is called for several operators has a row for each, distinguished by its time.
    mine = points(replace(session, profiles=(profile,)))
    found = {(p.kernel, p.total_s): p for p in mine}
    whole = profile.end_to_end_s
    generated = codes(session, profile)
    described = {ir.name: ir for ir in session.kernel_ir if ir.is_of(profile.key)}
    rows = [
        KernelRow(
            k,
            k.total_s / whole if whole else 0.0,
            found.get((k.name, k.total_s)),
            k.resources or generated.get(k.name),
            matrix(k, described.get(k.name)),
        )
        for k in profile.kernels
    ]
    return sorted(rows, key=lambda r: -r.kernel.total_s)


def codes(session: Session, profile: Profile) -> dict[str, Resources]:
    """Return what generated kernels take by their code: older profiles do not say it."""
    known = (ir for ir in session.kernel_ir if ir.is_of(profile.key))
    return {ir.name: ir.code.resources for ir in known if ir.code is not None}


def scale_s(rows: Sequence[view.ResultLine]) -> float:
    """Return the value of a whole bar: the longest interval's end among rows of similar speed."""
    limit = view.LOG_RATIO * min(row.summary["median_s"] for row in rows)
    near = [row.summary for row in rows if row.summary["median_s"] <= limit]
    longest: float = max(end for s in near for end in (s["median_s"], *(s["ci95_s"] or ())))
    return longest


def strays(session: Session) -> dict[RowKey, str]:
    """Return profiles that do not match the table's times, each with a sentence.

    Both contain plain runs of the same code. If they differ much, one of them was disturbed, and
    the profile's causes do not explain the table.
    """
    found = {}
    for profile in session.profiles:
        row = session.result_of(profile)
        median_s = view.ResultLine(row).median_s if row else None
        if not median_s or abs(profile.seen_s / median_s - 1) <= STRAY:
            continue
        text = _(
            "{backend} took {profiled} while it was profiled and {measured} when it was measured: "
            "something disturbed one of the two. Profile again on a quiet machine."
        )
        found[profile.key] = text.format(
            backend=clean(profile.key.name, NAME_LIMIT),
            profiled=format_s(profile.seen_s),
            measured=format_s(median_s),
        )
    return found


@dataclass(frozen=True)
class Step:
    """A bar of the waterfall, starting at the end of the previous one."""

    label: str
    kind: str
    start_s: float
    delta_s: float
    sources: str = ""

    @property
    def end_s(self) -> float:
        return self.start_s + self.delta_s


def steps(waterfall: Waterfall) -> list[Step]:
    """Return the bars from `theirs` at 0 to the whole gap, the largest operators first."""
    bars = sorted(
        (b for b in waterfall.bars if b.kind == "operator"), key=lambda b: -abs(b.delta_s)
    )
    found = [
        Step(clean(b.label, LABEL_LIMIT), b.kind, 0.0, b.delta_s, operators(b.source_ops, 6))
        for b in bars[:MOST_BARS]
    ]
    if rest := bars[MOST_BARS:]:
        text = plural("{n} smaller group", "{n} smaller groups", len(rest)).format(n=len(rest))
        found.append(Step(text, "operator", 0.0, sum(b.delta_s for b in rest)))
    others = [b for b in waterfall.bars if b.kind != "operator"]
    found += [Step(clean(b.label, LABEL_LIMIT), b.kind, 0.0, b.delta_s) for b in others]
    start, placed = 0.0, []
    for step in found:
        placed.append(replace(step, start_s=start))
        start += step.delta_s
    return placed


@dataclass(frozen=True)
class RoofLine:
    """A measured limit, from one end of the figure to the start of another limit."""

    label: str
    start: tuple[float, float]
    end: tuple[float, float]

    def between(self, place: int) -> tuple[float, float]:
        """Return the position of its label: parallel neighbours get different positions."""
        part = 0.3 + 0.17 * (place % 4)
        x, y = (a ** (1 - part) * b**part for a, b in zip(self.start, self.end, strict=True))
        return x, y


@dataclass(frozen=True)
class Roofline:
    """The kernels of one target under its roofs."""

    target: str
    lines: tuple[RoofLine, ...]
    rows: tuple[tuple[RowKey, KernelRow], ...]
    """The profiled row and its kernel; only kernels with a point."""


def rooflines(session: Session) -> list[Roofline]:
    """Return a figure per target with profiles and roofs, ours first within each."""
    found = []
    for target in dict.fromkeys(p.key.target for p in session.profiles):
        profiles = [p for p in own_first(session) if p.key.target == target]
        rows = [(p.key, r) for p in profiles for r in kernel_rows(session, p) if r.point]
        if rows:
            places = [r.point.intensity for _key, r in rows if r.point]
            roofs = limits(session, profiles[0])
            peaks = _peaks(session, profiles)
            lines = _roof_lines(session, roofs, peaks, min(places) / 2, max(places) * 2)
            found.append(Roofline(target, tuple(lines), tuple(rows)))
    return found


def _peaks(session: Session, profiles: Iterable[Profile]) -> dict[float, str]:
    """Return the flat roofs over the kernels with known work, the highest first, each with its
    name."""
    found = {}
    for profile in profiles:
        roofs = limits(session, profile)
        for products in {k.products for k in profile.kernels if k.flops}:
            if rate := roofs.rate(products):
                found[rate] = {
                    None: _("arithmetic {rate}"),
                    "tf32": _("TF32 {rate}"),
                    "tf32x3": _("three TF32 products {rate}"),
                }[products].format(rate=si(rate, "FLOP/s"))
    return dict(sorted(found.items(), reverse=True))


def _roof_lines(
    session: Session, roofs: Limits, peaks: Mapping[float, str], low: float, high: float
) -> list[RoofLine]:
    """Return the slopes of the memories up to the flat roofs of the arithmetic."""
    peak, levels = max(peaks, default=None), roofs.levels
    if peak is None or not levels:
        return []
    names = {r.bytes_per_s: r.level or r.how for r in session.roofs if r.bytes_per_s}
    ridges = [peak / level.bytes_per_s for level in levels]
    low, high = min(low, *ridges) / 2, max(high, *ridges) * 2
    lines = [
        RoofLine(
            f"{clean(names[level.bytes_per_s], LABEL_LIMIT)} {si(level.bytes_per_s, 'B/s')}",
            (low, low * level.bytes_per_s),
            (ridge, peak),
        )
        for level, ridge in zip(levels, ridges, strict=True)
    ]
    fastest = levels[-1].bytes_per_s
    flats = [RoofLine(name, (rate / fastest, rate), (high, rate)) for rate, name in peaks.items()]
    return [*lines, *flats]


@dataclass(frozen=True)
class GroupRow:
    """Overlapping source operators with their time in every profiled backend."""

    sources: str
    times_s: tuple[float | None, ...]
    """Times in the order of the backends; None if a backend has none of them."""
    delta_s: float | None
    """Our time minus the reference's; None if one of the two is missing."""

    @property
    def longest_s(self) -> float:
        return max((t for t in self.times_s if t is not None), default=0.0)


def group_rows(session: Session, gap: Waterfall | None) -> tuple[list[str], list[GroupRow]]:
    """Return backends, ours first, and their times per group of source operators, longest first."""
    groups = align(session)
    found = dict.fromkeys(key for group in groups for key in group.times_s)
    keys = sorted(found, key=lambda key: not key.is_ours)
    several = len({p.key.target for p in session.profiles}) > 1
    rows = []
    for group in groups:
        delta = None
        if gap is not None and gap.ours in group.times_s and gap.theirs in group.times_s:
            delta = group.times_s[gap.ours] - group.times_s[gap.theirs]
        text = operators(group.source_ops) or _("kernels of unknown origin")
        rows.append(GroupRow(text, tuple(group.times_s.get(key) for key in keys), delta))
    names = [key.label if several else key.name for key in keys]
    return names, sorted(rows, key=lambda r: -r.longest_s)
