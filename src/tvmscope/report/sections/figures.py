"""Draws a session's figures as SVG with matplotlib, for documents that cannot run a script."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from tvmscope.analysis.waterfall import waterfall
from tvmscope.core.session import Session
from tvmscope.messages import _
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import charts, view

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OWN, _PEER, _GOOD, _BAD, _SOFT = "#0b63c4", "#9aa3ad", "#0e7345", "#b3271e", "#59616b"
_BOUNDS = {"compute": _OWN, "memory": "#7a3fc4", "neither": "#b07400"}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, accessible
    "svg.hashsalt": "tvmscope",  # the same session gives the same file
    "text.parse_math": False,  # a dollar sign in a model's name is not mathematics
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#c9ced4",
    "axes.labelcolor": _SOFT,
    "xtick.color": _SOFT,
    "ytick.color": "#1b1e22",
}
_WIDTH = 8.0
_ROW = 0.3
"""The height of a bar in inches."""
_WIDE_LETTER = 0.05
"""The extra width in inches of a Chinese character over matplotlib's estimate."""


def figures(session: Session) -> dict[str, str]:
    """Return the figures for which this session has data, by name."""
    makers: tuple[tuple[str, Callable[[Session], str | None]], ...] = (
        ("backends", _backends),
        ("waterfall", _waterfall),
        ("roofline", _roofline),
        ("kernels", _kernels),
    )
    return {name: document for name, make in makers if (document := make(session)) is not None}


@contextmanager
def _canvas(height: float, title: str) -> Iterator[tuple[Axes, StringIO]]:
    """Yield axes to draw on; afterwards the stream contains the SVG document."""
    # Use the figure alone, without pyplot: no window system, no state shared with the caller.
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    stream = StringIO()
    with rc_context(_STYLE), warnings.catch_warnings():
        # Text stays text: the viewer has the characters that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        yield axes, stream
        figure.savefig(stream, format="svg", metadata={"Date": None, "Title": title})


def bars(
    title: str, rows: Sequence[tuple[str, float, str]], unit: str, limit: float | None = None
) -> str:
    """Return a bar chart of named values, each with its own text; `limit` is an upper bound."""
    with _canvas(1.0 + _ROW * max(1, len(rows)), clean(title)) as (axes, stream):
        for index, (_name, value, words) in enumerate(rows):
            axes.barh(index, value, 0.62, color=_OWN)
            _beside(axes, clean(words, NAME_LIMIT), value, index)
        if limit is not None:
            axes.axvline(limit, color=_BAD, lw=1.0, linestyle="--")
        axes.margins(x=0.18)
        axes.set_xlabel(unit)
        _labels(axes, [clean(name, 80) for name, _value, _words in rows])
    return stream.getvalue()


def _labels(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    wide = max(sum(unicodedata.east_asian_width(c) in "WF" for c in name) for name in names)
    if wide:
        left = wide * _WIDE_LETTER / _WIDTH
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.set_layout_engine("constrained", rect=(left, 0, 1 - left, 1))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)


def _beside(axes: Axes, text: str, x: float, y: float) -> None:
    """Write a bar's number a little to the right of its end."""
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center")


def _backends(session: Session) -> str | None:
    rows = view.measured(session)
    if not rows:
        return None
    several = len(view.targets(session)) > 1
    names = [r.name + (f" @ {clean(r.result.task.target, 20)}" if several else "") for r in rows]
    scale_ms = charts.scale_s(rows) * 1e3
    with _canvas(1.0 + _ROW * len(rows), _("Median time of one run")) as (axes, stream):
        for index, row in enumerate(rows):
            time_ms, ends = row.summary["median_s"] * 1e3, row.summary["ci95_s"] or ()
            off = time_ms > scale_ms  # it would make the others too small: hatched, and cut
            axes.barh(
                index, min(time_ms, scale_ms), 0.62, color=_OWN if row.is_own else _PEER,
                hatch="//" if off else None, edgecolor="white" if off else None,
            )  # fmt: skip
            ends = () if off else [1e3 * end for end in ends]
            axes.plot(ends, [index] * len(ends), color="#1b1e22", lw=1.2, marker="|")
            _beside(axes, row.median, max([min(time_ms, scale_ms), *ends]), index)
        axes.margins(x=0.12)
        axes.set_xlabel(_("ms, with the 95 % interval"))
        _labels(axes, names)
    return stream.getvalue()


def _waterfall(session: Session) -> str | None:
    gap = waterfall(session)
    if gap is None:
        return None
    ours, theirs = (clean(key.name, NAME_LIMIT) for key in (gap.ours, gap.theirs))
    total = gap.ours_s - gap.theirs_s
    whole = charts.Step(_("{ours} in all").format(ours=ours), "total", 0.0, total)
    steps = [*charts.steps(gap), whole]
    title = _("From {theirs} to {ours}").format(theirs=theirs, ours=ours)
    with _canvas(1.0 + _ROW * len(steps), title) as (axes, stream):
        for index, step in enumerate(steps):
            colour = {"total": _OWN, "unexplained": _PEER}.get(step.kind)
            colour = colour or (_BAD if step.delta_s > 0 else _GOOD)
            axes.barh(index, step.delta_s * 1e3, 0.62, left=step.start_s * 1e3, color=colour)
            end = max(step.start_s, step.end_s) * 1e3
            _beside(axes, charts.signed(step.delta_s), end, index)
        axes.axvline(0, color=_SOFT, lw=0.8)
        axes.margins(x=0.14)
        axes.set_xlabel(
            _("difference to {theirs} in ms; left of 0 is faster").format(theirs=theirs)
        )
        _labels(axes, [step.label for step in steps])
    return stream.getvalue()


def _roofline(session: Session) -> str | None:
    """Draw our kernels, or the first profile's, on the first target with roofs."""
    from matplotlib.ticker import EngFormatter, NullFormatter

    found = charts.rooflines(session)
    if not found:
        return None
    roofline = found[0]
    first = roofline.rows[0][0]
    title = _("Roofline: {backend} @ {target}").format(
        backend=clean(first.name, NAME_LIMIT), target=clean(roofline.target, NAME_LIMIT)
    )
    with _canvas(4.6, title) as (axes, stream):
        _draw_roofs(axes, roofline.lines)
        _draw_points(axes, [r for key, r in roofline.rows if key == first])
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_major_formatter("{x:g}")  # the default ones use mathematical notation
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(_("arithmetic intensity (FLOP per byte)"))
        axes.set_ylabel(_("speed (FLOP per second)"))
        axes.legend(frameon=False, loc="lower right", markerscale=0.6)
    return stream.getvalue()


def _draw_roofs(axes: Axes, lines: Sequence[charts.RoofLine]) -> None:
    for index, line in enumerate(lines):
        inner = 0 < index < len(lines) - 1
        xs, ys = zip(line.start, line.end, strict=True)
        axes.plot(xs, ys, color=_SOFT, lw=1.0 if inner else 1.4, ls=":" if inner else "-")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.annotate(
            line.label, line.between(index), fontsize=7.5, color=_SOFT, ha="center",
            va="center", bbox=box,
        )  # fmt: skip


def _draw_points(axes: Axes, rows: Sequence[charts.KernelRow]) -> None:
    points = [(r.share, r.point) for r in rows if r.point]
    for bound, text in (
        ("compute", _("bound by arithmetic")),
        ("memory", _("bound by memory")),
        ("neither", _("bound by neither")),
    ):
        members = [(share, p) for share, p in points if p.bound == bound]
        if members:
            axes.scatter(
                [p.intensity for _s, p in members], [p.flops_per_s for _s, p in members],
                s=[20 + 600 * share for share, _p in members], alpha=0.8, lw=0.6,
                color=_BOUNDS[bound], edgecolor="white", label=text, zorder=3,
            )  # fmt: skip


def _kernels(session: Session) -> str | None:
    profiles = charts.own_first(session)
    if not profiles or not profiles[0].kernels:
        return None
    profile = profiles[0]
    rows = charts.kernel_rows(session, profile)[:15]
    title = _("Top kernels: {backend} @ {target}").format(
        backend=clean(profile.key.name, NAME_LIMIT), target=clean(profile.key.target, NAME_LIMIT)
    )
    with _canvas(1.0 + _ROW * len(rows), title) as (axes, stream):
        for index, row in enumerate(rows):
            axes.barh(index, row.kernel.total_s * 1e3, 0.62, color=_OWN)
            text = f"{format_s(row.kernel.total_s)} ({charts.percent(row.share)})"
            _beside(axes, text, row.kernel.total_s * 1e3, index)
        axes.margins(x=0.2)
        axes.set_xlabel(_("ms of one run"))
        _labels(axes, [clean(row.kernel.name, 40) for row in rows])
    return stream.getvalue()
