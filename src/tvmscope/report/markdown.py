"""A Markdown document, for issues and pull requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvmscope.core.session import Session
from tvmscope.messages import _
from tvmscope.report import _summary, _view
from tvmscope.report.escape import NAME_LIMIT
from tvmscope.report.escape import markdown as escape
from tvmscope.report.renderers import Renderer


def render(sessions: Sequence[Session]) -> str:
    """Every session, and their summary first when there are several."""
    blocks = list(_overview(sessions)) if len(sessions) > 1 else []
    for session in sessions:
        blocks += _session(session)
    return "\n\n".join(blocks) + "\n"


def _session(session: Session) -> Iterator[str]:
    yield f"## {escape(session.model.name, NAME_LIMIT)}"
    yield " · ".join(escape(part) for part in _view.header(session))
    if failure := _view.failure(session):
        yield _bold(escape(failure))
    rows = _view.measured(session)
    if rows:
        yield _table(
            (
                _("backend"),
                _("target"),
                _("median"),
                _("95 % interval"),
                _view.versus_title(rows),
                _("error"),
                _("memory"),
            ),
            (
                (
                    _bold(escape(row.name), row.is_own),
                    escape(row.result.task.target, NAME_LIMIT),
                    row.median,
                    row.interval,
                    escape(f"{row.speedup} {row.verdict}"),
                    row.accuracy,
                    row.memory,
                )
                for row in rows
            ),
        )
    yield from (_bold(escape(line)) for line in _view.headlines(session))
    if lines := list(_lines(session)):
        yield "\n".join(f"- {line}" for line in lines)
    yield f"<sub>{escape(_view.environment(session), 600)}</sub>"


def _lines(session: Session) -> Iterator[str]:
    for row in _view.unmeasured(session):
        time = "" if row.median_s is None else f" ({row.median})"
        where = escape(f"{row.name} @ {row.result.task.target}", 2 * NAME_LIMIT)
        reason = f": {escape(row.reason)}" if row.reason else ""
        yield f"{where} **{_(row.result.status)}**{time}{reason}"
    yield from (escape(note) for note in _view.notes(session))
    yield from (_("warning: ") + escape(text) for text in _view.warnings(session))


def _overview(sessions: Sequence[Session]) -> Iterator[str]:
    lines = [_summary.summarize(s) for s in sessions]
    yield _table(
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
    if mean := _summary.geometric_mean(lines):
        yield _bold(escape(mean))


def _bold(text: str, on: bool = True) -> str:
    return f"**{text}**" if on else text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


RENDERER = Renderer("markdown", ".md", render)
