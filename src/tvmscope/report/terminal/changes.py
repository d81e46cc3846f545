"""Shows two measurements side by side: what became faster, slower, or is undecided."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.analysis.changes import TOP, Changes, PartChange, RowChange
from tvmscope.messages import _
from tvmscope.quantities import format_s
from tvmscope.report.escape import clean
from tvmscope.report.terminal import sightings

_STYLES = {"faster": "green", "slower": "red", "undecided": "yellow"}
_NAMES = 60


def render(found: Changes, top: int = 10) -> RenderableType:
    """Render rows first, then the operators and kernels that changed most."""
    parts: list[RenderableType] = [_rows(found.rows)] if found.rows else []
    for row in found.rows:
        if row.ours and row.through is None and row.ci95 is None:
            text = _("{row}: no common backend to compare through, so undecided")
            parts.append(Text(clean(text.format(row=row.label)), style="yellow"))
    if spreads := [row for row in found.rows if row.spreads is not None]:
        parts += [Text(""), _spreads(spreads)]
    for title, changed in ((_("source operator"), found.operators), (_("kernel"), found.kernels)):
        called = [part for part in changed if part.verdict != "undecided"]
        if called:
            parts += [Text(""), _parts(title, called[:top])]
        if changed and len(called) < len(changed):
            text = _("{count} of {all}: no clear change").format(
                count=len(changed) - len(called), all=len(changed)
            )
            parts.append(Text(f"{title}: {text}", style="dim"))
    parts += _tops(found)
    for sighting in found.sightings:
        parts += [Text(""), *sightings.render(sighting)]
    for text in found.warnings:
        parts.append(Text(_("warning: "), style="yellow").append(clean(text)))
    return Group(*parts)


def _tops(found: Changes) -> list[RenderableType]:
    """Return the kernels that left and entered the longest ones, one per line."""
    words = (
        (_("left the {top} longest kernels"), found.left),
        (_("entered the {top} longest kernels"), found.entered),
    )
    parts: list[RenderableType] = []
    for title, names in words:
        if names:
            parts += [Text(""), Text(title.format(top=TOP), style="dim")]
            parts += [Text(f"  {clean(name, _NAMES)}") for name in names]
    return parts


def _rows(rows: Sequence[RowChange]) -> Table:
    titles = (_("row"), _("before"), _("after"), _("speed-up"), _("95 % interval"), _("verdict"),
              _("through"))  # fmt: skip
    table = _table(titles)
    for row in rows:
        interval = "-" if row.ci95 is None else f"{row.ci95[0]:.3f} - {row.ci95[1]:.3f}"
        table.add_row(
            Text(clean(f"{row.label} @ {row.target}", _NAMES), style="bold"),
            Text(format_s(row.before_s)),
            Text(format_s(row.after_s)),
            Text(f"{row.speedup:.3f}x"),
            Text(interval, style="dim"),
            Text(_(row.verdict), style=_STYLES[row.verdict]),
            Text(clean(row.through or "-", _NAMES)),
        )
    return table


def _spreads(rows: Sequence[RowChange]) -> Table:
    """Return mean, median and standard deviation of both sides; verdicts are about medians."""
    table = _table(("", _("mean"), _("median"), _("std"), _("timings")))
    for row in rows:
        for side, found in zip((_("before"), _("after")), row.spreads or (), strict=False):
            name = side if len(rows) == 1 else f"{row.label} @ {row.target}, {side}"
            table.add_row(
                Text(clean(name, _NAMES)),
                Text(format_s(found.mean_s)),
                Text(format_s(found.median_s)),
                Text(format_s(found.std_s)),
                Text(str(found.samples)),
            )
    return table


def _parts(title: str, parts: Sequence[PartChange]) -> Table:
    table = _table((title, _("before"), _("after"), _("change"), ""))
    for part in parts:
        delta = (part.after_s or 0.0) - (part.before_s or 0.0)
        table.add_row(
            Text(clean(part.label, _NAMES)),
            Text(format_s(part.before_s)),
            Text(format_s(part.after_s)),
            Text(f"{'+' if delta > 0 else ''}{format_s(delta)}"),
            Text(_(part.verdict), style=_STYLES[part.verdict]),
        )
    return table


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right", overflow="fold")
    return table
