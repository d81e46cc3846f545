"""Writes a Markdown document, for issues and pull requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tvmscope.core.session import Session
from tvmscope.messages import _
from tvmscope.report.escape import NAME_LIMIT
from tvmscope.report.escape import markdown as escape
from tvmscope.report.renderers import Renderer
from tvmscope.report.sections import ablation, figures, summary, view
from tvmscope.report.sections.markdown_parts import bold, explained, table
from tvmscope.report.sections.view import ResultLine

Pictures = Sequence[tuple[str, str]]
"""Titles and paths of images."""


def render(sessions: Sequence[Session], pictures: Sequence[Pictures] = ()) -> str:
    """Render every session, and first their summary if there are several."""
    blocks = list(_overview(sessions)) if len(sessions) > 1 else []
    for number, session in enumerate(sessions):
        blocks += _session(session, pictures[number] if pictures else ())
    return "\n\n".join(blocks) + "\n"


def files(sessions: Sequence[Session], name: str) -> dict[str, str]:
    """Return the document as `name`, with its images in `figures/`."""
    titles = {
        "backends": _("Backends"),
        "waterfall": _("Where the gap comes from"),
        "roofline": _("Roofline"),
        "kernels": _("Top kernels"),
    }
    stem = _plain(name)
    drawn: dict[str, str] = {}
    pictures = []
    for number, session in enumerate(sessions, 1):
        prefix = f"{stem}-{number}" if len(sessions) > 1 else stem
        paths = {key: f"figures/{prefix}-{key}.svg" for key in titles}
        found = figures.figures(session)
        drawn |= {paths[key]: picture for key, picture in found.items()}
        pictures.append([(titles[key], paths[key]) for key in found])
    return {name: render(sessions, pictures)} | drawn


def _plain(name: str) -> str:
    """Return a file's stem without characters that have a meaning in a Markdown link."""
    return re.sub(r"[^\w.-]+", "_", name.rpartition(".")[0] or name)


def _session(session: Session, pictures: Pictures) -> Iterator[str]:
    yield f"## {escape(session.model.name, NAME_LIMIT)}"
    yield " · ".join(escape(part) for part in view.header(session))
    if failure := view.failure(session):
        yield bold(escape(failure))
    rows = view.measured(session)
    if rows:
        columns = list(_columns(rows))
        yield table(
            [title for title, _cells in columns],
            zip(*(cells for _title, cells in columns), strict=True),
        )
    yield from (bold(escape(line)) for line in view.headlines(session))
    if lines := list(_lines(session)):
        yield "\n".join(f"- {line}" for line in lines)
    yield from (f"![{title}]({path})" for title, path in pictures)
    yield from ablation.markdown(session)
    yield from explained(session)
    yield f"<sub>{escape(view.environment(session), 600)}</sub>"


def _columns(rows: Sequence[ResultLine]) -> Iterator[tuple[str, list[str]]]:
    """Yield titles and cells of a session's table."""
    yield _("backend"), [bold(escape(row.name), row.is_own) for row in rows]
    yield _("target"), [escape(row.result.task.target, NAME_LIMIT) for row in rows]
    yield _("median"), [row.median for row in rows]
    yield _("95 % interval"), [row.interval for row in rows]
    yield _("mean ± deviation"), [row.mean for row in rows]
    if any(row.rate for row in rows):
        yield _("items/s"), [row.rate for row in rows]
    if any(row.clock for row in rows):
        yield _("GPU clock"), [row.clock or "-" for row in rows]
    yield view.versus_title(rows), [escape(f"{row.speedup} {row.verdict}") for row in rows]
    yield _("error"), [row.accuracy for row in rows]
    yield _("memory"), [row.memory for row in rows]


def _lines(session: Session) -> Iterator[str]:
    for row in view.unmeasured(session):
        time = "" if row.median_s is None else f" ({row.median})"
        where = escape(f"{row.name} @ {row.result.task.target}", 2 * NAME_LIMIT)
        reason = f": {escape(row.reason)}" if row.reason else ""
        yield f"{where} **{_(row.result.status)}**{time}{reason}"
    yield from (escape(note) for note in view.notes(session))
    yield from (_("warning: ") + escape(text) for text in view.warnings(session))


def _overview(sessions: Sequence[Session]) -> Iterator[str]:
    lines = [summary.summarize(s) for s in sessions]
    yield table(
        (_("model"), _("status"), _("tvmscope"), _("fastest"), _("against the best peer")),
        (
            (
                escape(line.model, NAME_LIMIT),
                _(line.status),
                line.own,
                escape(line.fastest),
                escape(f"{line.speedup} {line.verdict}" if line.speedup else line.reason, 120),
            )
            for line in lines
        ),
    )
    if mean := summary.geometric_mean(lines):
        yield bold(escape(mean))


RENDERER = Renderer("markdown", ".md", render, files)
