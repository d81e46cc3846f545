"""Writes documents from the rows of a suite: a CSV table, a Markdown page and an HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from tvmscope.analysis.suite import BINS, Against, Moves, Summary, moves, summarize
from tvmscope.core.suite import SuiteRow
from tvmscope.messages import _
from tvmscope.quantities import format_s
from tvmscope.report.escape import clean, plain
from tvmscope.report.escape import markdown as escape
from tvmscope.report.formats.html import script_hash, templates
from tvmscope.report.sections.markdown_parts import table
from tvmscope.storage.files import write_text_atomic

_NAME = 160
FILES = ("summary.csv", "summary.md", "index.html")


def write(rows: Sequence[SuiteRow], folder: Path, old: Sequence[SuiteRow] | None = None) -> None:
    """Write all documents into the suite's folder."""
    ordered = sorted(rows, key=lambda row: row.problem)
    moved = None if old is None else moves(old, ordered)
    texts = (as_csv(ordered), as_markdown(ordered, moved), as_html(ordered, moved))
    for name, text in zip(FILES, texts, strict=True):
        write_text_atomic(folder / name, text)


def as_csv(rows: Sequence[SuiteRow]) -> str:
    """Return a line per problem; a text that a spreadsheet would treat as a formula is quoted."""
    backends = _backends(rows)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            "problem", "outcome", "reason", "error", "noise", "fallback_share", "took_s", "host",
            *(f"{name} s" for name in backends), *(f"speedup over {name}" for name in backends[1:]),
            "finding",
        ]
    )  # fmt: skip
    for row in rows:
        speedups = [row.speedups.get(name) for name in backends[1:]]
        writer.writerow(
            [
                _cell(row.problem), row.outcome, _cell(row.reason or ""), _number(row.error),
                _number(row.noise), _number(row.fallback_share), f"{row.took_s:.2f}",
                _cell(row.host), *(_number(row.medians_s.get(name)) for name in backends),
                *(_number(s.value if s else None) for s in speedups), _cell(row.finding or ""),
            ]
        )  # fmt: skip
    return stream.getvalue()


def as_markdown(rows: Sequence[SuiteRow], moved: Moves | None = None) -> str:
    """Return the summary, the problems with wrong results, and those that are slower."""
    whole = summarize(rows)
    blocks = [f"# {_('Suite')}", _headline(whole), _outcome_table(whole)]
    if whole.against:
        blocks += [f"## {_('Speed-ups')}", *_doubts(rows), _speed_table(whole)]
    if moved is not None:
        blocks += [f"## {_('What moved')}", *_moved(moved)]
    if whole.slowest:
        blocks += [f"## {_('Furthest behind')}", _slowest_table(whole)]
    if bad := [row for row in rows if not row.is_right]:
        lines = [
            [escape(row.problem, _NAME), _(row.outcome), escape(row.reason or "")] for row in bad
        ]
        blocks += [
            f"## {_('Not right')}",
            table([_("problem"), _("outcome"), _("reason")], lines),
        ]
    return "\n\n".join(blocks) + "\n"


def as_html(rows: Sequence[SuiteRow], moved: Moves | None = None) -> str:
    """Return one page that loads nothing and runs only its own script, to sort and filter."""
    environment = templates()
    script = environment.get_template("suite.js.j2").render()
    return environment.get_template("suite.html.j2").render(
        rows=[_Line(row) for row in rows],
        whole=(whole := summarize(rows)),
        headline=_headline(whole),
        doubts=[clean(line, 400) for line in _doubts(rows)],
        backends=_backends(rows),
        bins=BINS,
        moved=moved,
        script=script,
        script_hash=script_hash(script),
    )


class _Line:
    """A row as the page shows it."""

    def __init__(self, row: SuiteRow) -> None:
        self.row = row
        self.problem = clean(row.problem, _NAME)
        self.reason = clean(row.reason or "")
        self.finding = clean(row.finding or next(iter(row.warnings), ""))
        self.fallbacks = clean(", ".join(row.fallbacks))

    def time(self, backend: str) -> str:
        """Return a backend's median, or nothing."""
        value = self.row.medians_s.get(backend)
        return "" if value is None else format_s(value)

    def speedup(self, backend: str) -> float | None:
        """Return our speed-up over a backend."""
        found = self.row.speedups.get(backend)
        return found.value if found else None


def _backends(rows: Sequence[SuiteRow]) -> list[str]:
    """Return our backends first, then the others by name."""
    others = sorted({name for row in rows for name in row.speedups})
    names = {name for row in rows for name in row.medians_s}
    return [*sorted(names - set(others), key=lambda n: (n != "tvmscope", n)), *others]


def _headline(whole: Summary) -> str:
    return _("{right} of {problems} problems are right; {took} of work on {hosts}.").format(
        right=whole.right,
        problems=whole.problems,
        took=format_s(whole.took_s),
        hosts=clean(", ".join(whole.hosts), 120) or "-",
    )


def _outcome_table(whole: Summary) -> str:
    lines = [[_(name), str(count)] for name, count in whole.outcomes.items() if count]
    lines.append([_("right with operators in their framework"), str(whole.with_fallback)])
    return table([_("outcome"), _("problems")], lines)


def _speed_table(whole: Summary) -> str:
    titles = [
        _("against"), _("problems"), _("geometric mean"), _("median"), _("range"),
        _("right and over 1x"), _("over 1.5x"), _("over 2x"),
    ]  # fmt: skip
    return table(titles, [_speed_line(each) for each in whole.against])


def _doubts(rows: Sequence[SuiteRow]) -> list[str]:
    """Return a line if times have warnings: on a busy machine any ratio is possible."""
    doubtful = [row for row in rows if row.speedups and row.warnings]
    if not doubtful:
        return []
    said = _("{count} problems have warnings about their times, such as: {first}").format(
        count=len(doubtful), first=clean(doubtful[0].warnings[0])
    )
    return [escape(said, 400)]


def _speed_line(each: Against) -> list[str]:
    shares = [f"{share:.0%}" for share in each.over.values()]
    spread = _("{low} to {high}").format(low=f"{each.low:.2f}x", high=f"{each.high:.2f}x")
    return [
        escape(each.backend), str(each.problems), f"{each.mean:.2f}x", f"{each.median:.2f}x",
        spread, *shares,
    ]  # fmt: skip


def _slowest_table(whole: Summary) -> str:
    lines = []
    for row in whole.slowest:
        name = min(row.speedups, key=lambda n: row.speedups[n].value)
        lines.append(
            [
                escape(row.problem, _NAME), f"{row.speedups[name].value:.2f}x", escape(name),
                escape(row.finding or ""),
            ]
        )  # fmt: skip
    return table([_("problem"), _("speed-up"), _("against"), _("first finding")], lines)


def _moved(moved: Moves) -> list[str]:
    said = _("{count} problems compared, {other} measured on another host.").format(
        count=moved.compared, other=moved.other_hosts
    )
    if not moved.moves:
        return [said, _("Nothing moved.")]
    lines = [
        [
            escape(m.problem, _NAME),
            *map(_, (m.kind, m.before or "", m.after or "")),
            m.against or "",
        ]
        for m in moved.moves
    ]
    return [said, table([_("problem"), _("change"), _("before"), _("after"), _("against")], lines)]


def _cell(text: str) -> str:
    safe = plain(text, 400)
    return f"'{safe}" if safe[:1] in "=+-@" else safe


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
