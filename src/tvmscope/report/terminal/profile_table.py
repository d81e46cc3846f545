"""Renders the kernel table for the terminal: one per profiled row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from tvmscope.analysis.roofline import Limits, limits
from tvmscope.core.profile import KernelTime, Profile, Resources
from tvmscope.core.session import Session
from tvmscope.messages import _, plural
from tvmscope.quantities import format_rate, format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import charts

_OPS_WIDTH = 60
_KERNEL_WIDTH = 40
_LONGEST_NAME = 120
_WIDE = 150
"""From this width on names keep their room beside the columns of what a kernel takes."""


def render(session: Session, top: int) -> RenderableType:
    """Render every profile of a session, and why others could not be made."""
    parts: list[RenderableType] = []
    for profile in session.profiles:
        table = _Kernels(profile, top, limits(session, profile), charts.codes(session, profile))
        parts += [_heading(session, profile), table, *_lines(profile, top), Text("")]
    parts += [Text(_("warning: "), style="yellow").append(clean(text)) for text in session.warnings]
    return Group(*parts)


@dataclass(frozen=True)
class _Kernels:
    """The table of one profile; what a GPU's kernels take is shown where there is room for it."""

    profile: Profile
    top: int
    roofs: Limits
    codes: Mapping[str, Resources]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        kernels = [
            replace(k, resources=k.resources or self.codes.get(k.name))
            for k in by_kernel(self.profile.kernels)
        ]
        wide = options.max_width >= _WIDE and any(k.resources for k in kernels)
        yield _table(self.profile, kernels, self.top, self.roofs, charts.TAKEN if wide else {})


def by_kernel(kernels: Sequence[KernelTime]) -> list[KernelTime]:
    """Return one entry per kernel over all its calls, the longest first."""
    merged: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        merged.setdefault(kernel.name, []).append(kernel)
    found = [
        KernelTime(
            name=name,
            source_ops=tuple(dict.fromkeys(op for k in same for op in k.source_ops)),
            calls=sum(k.calls for k in same),
            total_s=sum(k.total_s for k in same),
            flops=_sum([k.flops for k in same]),
            bytes=_sum([k.bytes for k in same]),
            kind=same[0].kind,
            products=same[0].products,
            resources=longest.resources,
            symbol=longest.symbol,
        )
        for name, same in merged.items()
        for longest in (max(same, key=lambda k: k.total_s / max(1, k.calls)),)
    ]
    return sorted(found, key=lambda k: -k.total_s)


def _sum(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if len(known) == len(values) else None


def _heading(session: Session, profile: Profile) -> Text:
    title = Text(clean(session.model.name, NAME_LIMIT), style="bold")
    key = profile.key
    row = f" · {clean(key.name, NAME_LIMIT)} @ {clean(key.target, NAME_LIMIT)}"
    runs = plural("{n} run", "{n} runs", profile.runs).format(n=profile.runs)
    return title.append(row).append(f" · {clean(profile.how)}, {runs}", style="dim")


def _table(
    profile: Profile,
    kernels: Sequence[KernelTime],
    top: int,
    roofs: Limits,
    taken: Mapping[str, Callable[[Resources | None], str]],
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    # Names are shortened before numbers: a table of times without times says nothing. `explain
    # --kernel` needs a kernel's name: it is folded, never cut.
    table.add_column(_("kernel"), max_width=_KERNEL_WIDTH, overflow="fold", ratio=1)
    table.add_column(_("computes"), max_width=_OPS_WIDTH, overflow="ellipsis", ratio=1)
    numbers = (_("calls"), _("time"), _("share"), _("GFLOP/s"), _("GB/s"), _("of roof"))
    for title in (*numbers, *map(_, taken)):
        table.add_column(title, justify="right", no_wrap=True, min_width=cell_len(title))
    for kernel in kernels[:top]:
        said = (show(kernel.resources) for show in taken.values())
        table.add_row(*_cells(kernel, profile, roofs), *said)
    if rest := kernels[top:]:
        text = plural("{n} more kernel", "{n} more kernels", len(rest)).format(n=len(rest))
        spent = sum(k.total_s for k in rest)
        calls = str(sum(k.calls for k in rest))
        table.add_row(Text(text, style="dim"), "", calls, format_s(spent), _share(spent, profile))
    if profile.host_s is not None:
        table.add_row(
            Text(_("outside kernels"), style="dim"),
            "",
            "",
            format_s(profile.host_s),
            _share(profile.host_s, profile),
        )
    return table


def _cells(kernel: KernelTime, profile: Profile, roofs: Limits) -> list[Text]:
    flops, moved, spent = kernel.flops, kernel.bytes, kernel.total_s
    least = roofs.least_s(kernel)
    return [
        Text(clean(kernel.name, _LONGEST_NAME), style="yellow" if kernel.kind == "layout" else ""),
        Text(clean(", ".join(kernel.source_ops[:4]), 200), style="dim"),
        Text(str(kernel.calls)),
        Text(format_s(spent), style="bold"),
        Text(_share(spent, profile)),
        Text(_rate(flops, spent)),
        Text(_rate(moved, spent)),
        Text("-" if least is None or spent <= 0 else f"{least / spent:.0%}"),
    ]


def _rate(amount: float | None, seconds: float) -> str:
    return "-" if amount is None or seconds <= 0 else format_rate(amount / seconds * 1e-9)


def _share(seconds: float, profile: Profile) -> str:
    return f"{seconds / profile.profiled_s:.1%}" if profile.profiled_s > 0 else "-"


def _lines(profile: Profile, top: int) -> list[Text]:
    """Return the cost of the profiler itself, and whether its parts add up to the whole."""
    whole = profile.end_to_end_s
    if whole <= 0:
        return []
    text = _("kernels {kernels} + outside {outside} of a profiled run of {profiled}").format(
        kernels=format_s(profile.total_s),
        outside=format_s(profile.host_s),
        profiled=format_s(profile.profiled_s),
    )
    plain, overhead = format_s(whole), profile.overhead_s / whole
    cost = _("; without the profiler {plain}: it costs {overhead:+.1%}")
    if overhead < 0:  # profiling makes nothing faster
        cost = _("; without the profiler {plain}: it costs less than the noise")
    cost = cost.format(plain=plain, overhead=overhead)
    lines = [Text(text + cost, style="dim")]
    if said := charts.device_line(profile):
        lines.append(Text(said, style="dim"))
    return lines
