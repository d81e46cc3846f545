"""Parts of the Markdown document: tables, and the sections of profiles and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tvmscope.analysis.waterfall import Waterfall, waterfall
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.messages import _, plural
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT
from tvmscope.report.escape import markdown as escape
from tvmscope.report.sections import charts, fixes, tuning, verdict


def bold(text: str, on: bool = True) -> str:
    """Return strong text, if `on`."""
    return f"**{text}**" if on else text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are already escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def explained(session: Session) -> Iterator[str]:
    """Yield why, findings, top kernels and source operators; nothing without profiles."""
    gap = waterfall(session)
    whys = dict.fromkeys(v.why for v in verdict.verdicts(session, gap) if v.why)
    yield from (escape(why, 600) for why in whys)
    if astray := charts.strays(session):
        yield "\n".join(f"- {_('warning: ')}{escape(line)}" for line in astray.values())
    if session.findings:
        yield f"### {_('Findings and fixes')}"
        yield "\n".join(f"- {_finding(f)}" for f in session.findings)
    elif session.profiles:
        yield _("No rule found anything to improve in this session.")
    yield from _tried(session)
    yield from _tuned(session)
    yield from _kernels(session)
    yield from _operators(session, gap)


def _tried(session: Session) -> Iterator[str]:
    if not session.fixes:
        return
    yield f"### {_('Fixes that were tried')}"
    rows = fixes.rows(session.fixes)
    yield table(fixes.head(), ([escape(cell) for cell in fixes.cells(row)] for row in rows))
    if line := fixes.calibration(session.fixes):
        yield escape(line)


def _tuned(session: Session) -> Iterator[str]:
    """Yield the choices of tuning in words, and the worth of their parts."""
    rows = [row for row in tuning.searched(session) if row.words]
    if rows:
        yield f"### {_('What tuning chose')}"
    for row in rows:
        speed = "" if row.task.speedup is None else f": {row.validated}"
        yield bold(escape(row.name, NAME_LIMIT)) + speed
        yield "\n".join(f"- {escape(sentence)}" for sentence in row.words)
        if row.worth:
            head = (_("part"), _("without it"), _("time becomes"))
            cells = ((w.part, w.without, w.factor) for w in row.worth)
            yield table(head, ([escape(cell) for cell in line] for line in cells))


def _finding(finding: Finding) -> str:
    parts = [bold(escape(finding.title)), escape(finding.evidence, 600)]
    parts.append(f"{_('What to do:')} {escape(finding.advice, 600)}")
    saving = _("predicted saving {time}").format(time=format_s(finding.saving_s))
    if finding.achieved_s is not None:
        saving += ", " + _("achieved {time}").format(time=charts.signed(finding.achieved_s))
    facts = f"{escape(finding.rule, 60)}, {escape(_(finding.severity), 12)}, {saving}"
    return "<br>".join(parts) + f" ({facts})"


def _kernels(session: Session) -> Iterator[str]:
    for profile in charts.own_first(session)[:1]:
        name = escape(profile.key.label, 2 * NAME_LIMIT)
        yield f"### {_('Top kernels')}: {name}"
        rows = charts.kernel_rows(session, profile)[: charts.TOP_KERNELS]
        columns = list(_columns(rows))
        yield table(
            [title for title, _cells in columns],
            zip(*(cells for _title, cells in columns), strict=True),
        )
        text = _(
            "Kernels add up to {kernels}, outside kernels {host}; a plain run takes {plain}, a "
            "profiled one {profiled}."
        )
        yield text.format(
            kernels=format_s(profile.total_s),
            host=format_s(profile.host_s),
            plain=format_s(profile.end_to_end_s),
            profiled=format_s(profile.profiled_s),
        )
        if said := charts.device_line(profile):
            yield f"{said[0].upper()}{said[1:]}."


def _columns(rows: Sequence[charts.KernelRow]) -> Iterator[tuple[str, list[str]]]:
    """Yield titles and cells of the kernel table; a GPU's kernels have more."""
    yield _("kernel"), [escape(row.kernel.name, 80) for row in rows]
    yield _("source operators"), [escape(row.sources) for row in rows]
    yield _("calls"), [str(row.kernel.calls) for row in rows]
    yield _("time"), [format_s(row.kernel.total_s) for row in rows]
    yield _("share"), [charts.percent(row.share) for row in rows]
    yield _("speed"), [row.speed for row in rows]
    yield _("of its roof"), [f"{row.roof} {row.bound}" for row in rows]
    if any(row.resources for row in rows):
        for title, show in charts.TAKEN.items():
            yield _(title), [show(row.resources) for row in rows]
        yield _("matrix instruction"), [escape(row.matrix, 60) for row in rows]


def _operators(session: Session, gap: Waterfall | None) -> Iterator[str]:
    backends, rows = charts.group_rows(session, gap)
    if len(backends) < 2:
        return
    yield f"### {_('Source operators across backends')}"
    head = [_("source operators"), *(escape(b, NAME_LIMIT) for b in backends), _("lost or won")]
    shown = rows[: charts.TOP_GROUPS]
    yield table(
        head,
        (
            (
                escape(row.sources),
                *(format_s(time) for time in row.times_s),
                "-" if row.delta_s is None else charts.signed(row.delta_s),
            )
            for row in shown
        ),
    )
    if more := len(rows) - len(shown):
        text = plural("{n} shorter group is left out.", "{n} shorter groups are left out.", more)
        yield text.format(n=more)
