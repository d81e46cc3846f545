"""The headline of a report: whether TVM is faster, by how much, than which backend, and why."""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.analysis.waterfall import Bar, Waterfall
from tvmscope.core.session import Session
from tvmscope.messages import _
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import charts, view
from tvmscope.report.sections.charts import LABEL_LIMIT, signed
from tvmscope.report.sections.view import ResultLine

_NO_CAUSES = ("overhead", "unexplained")


@dataclass(frozen=True)
class Verdict:
    """The answer for one target and precision."""

    tone: str
    """`faster`, `slower`, `undecided`, or `none` if nothing can be compared."""
    sentence: str
    why: str = ""
    ratio: str = ""
    interval: str = ""
    scope: str = ""
    """Target and precision, if a session has several."""


def verdicts(session: Session, gap: Waterfall | None) -> list[Verdict]:
    """Return one answer per target and precision, or one that says what is missing."""
    rows = view.measured(session)
    keys = list(dict.fromkeys(view.group(r.result) for r in rows))
    found = []
    for key in keys:
        members = [r for r in rows if view.group(r.result) == key]
        scope = " · ".join(key) if len(keys) > 1 else ""
        found.append(_answer(session, members, gap, scope))
    return found or [Verdict("none", _nothing(session))]


def _answer(session: Session, rows: list[ResultLine], gap: Waterfall | None, scope: str) -> Verdict:
    own, peer = view.best(rows, own=True), view.best(rows, own=False)
    if own is None or peer is None or peer.versus is None:
        return Verdict("none", _alone(session, own, peer), scope=scope)
    comparison = peer.versus
    ratio, _bracket, interval = peer.speedup.partition(" ")
    if not peer.medians_agree:
        ratio = ""  # a large number would contradict the times in the same sentence
    words = {
        "model": clean(session.model.name, NAME_LIMIT),
        "own": own.name,
        "peer": peer.name,
        "own_time": own.median,
        "peer_time": peer.median,
        "times": f"{comparison.speedup:.2f}",
        "longer": f"{1 / comparison.speedup:.2f}",
    }
    text = {
        "faster": _(
            "Yes, TVM is faster: {own} runs {model} {times} times as fast as {peer}, the fastest "
            "other backend ({own_time} against {peer_time})."
        ),
        "slower": _(
            "No, TVM is slower: {own} takes {longer} times as long for {model} as {peer}, the "
            "fastest other backend ({own_time} against {peer_time})."
        ),
        "undecided": _(
            "There is no significant difference: {own} takes {own_time} for {model} and {peer}, "
            "the "
            "fastest other backend, {peer_time}."
        ),
    }[comparison.verdict]
    why = _why(session, gap, own, peer)
    return Verdict(comparison.verdict, text.format(**words), why, ratio, interval, scope)


def _alone(session: Session, own: ResultLine | None, peer: ResultLine | None) -> str:
    if own is not None:
        text = _("{own} takes {time}; no other runtime was measured beside it.")
        return text.format(own=own.name, time=own.median)
    trouble = next((r for r in view.unmeasured(session) if r.is_own), None)
    best = text = ""
    if peer is not None:
        best = _(" The fastest backend is {peer} with {time}.").format(
            peer=peer.name, time=peer.median
        )
    if trouble is None:
        text = _("TVM was not measured in this session.")
    else:
        text = _("There is no valid result of TVM: {own} is {status}.").format(
            own=trouble.name, status=_(trouble.result.status)
        )
    return text + best


def _nothing(session: Session) -> str:
    return clean(view.failure(session)) or _("Nothing could be measured in this session.")


def _why(session: Session, gap: Waterfall | None, own: ResultLine, peer: ResultLine) -> str:
    """Describe the largest parts of the gap in its direction, and the best remaining saving."""
    parts = []
    if gap is not None and gap.ours == own.result.key:
        doubt = _doubt(session, gap, peer)
        parts += [doubt] if doubt else [_launches(session, gap), _parts(gap)]
    savings = [f for f in session.findings if f.saving_s and f.achieved_s is None]
    if savings and own.is_own and not charts.strays(session):
        best = max(savings, key=lambda f: f.saving_s or 0.0)
        text = _("The largest saving left, about {saving}: {title}.")
        title = clean(best.title, 120).rstrip(".")
        parts.append(text.format(saving=format_s(best.saving_s), title=title))
    return " ".join(p for p in parts if p)


def _doubt(session: Session, gap: Waterfall, peer: ResultLine) -> str:
    """Say why the profiles cannot explain the verdict; empty if they can."""
    assert peer.versus is not None  # `_answer` has one
    if peer.versus.verdict == "undecided":
        seen = peer.versus.smallest_detectable
        text = _("A difference of {seen} would have been seen.")
        return text.format(seen=charts.percent(seen)) if seen is not None else ""
    astray = charts.strays(session)
    found = [astray[key] for key in (gap.ours, gap.theirs) if key in astray]
    faster = gap.ours_s < gap.theirs_s
    same_pair = gap.theirs == peer.result.key
    if not found and same_pair and faster != (peer.versus.verdict == "faster"):
        found = [_("While they were profiled, it was the other way round.")]
    return " ".join([_("The profiles do not explain it."), found[0]]) if found else ""


def _launches(session: Session, gap: Waterfall) -> str:
    """Describe how a GPU spent both runs, if its own clock was read."""
    profiles = {p.key: p for p in session.profiles}
    ours, theirs = profiles.get(gap.ours), profiles.get(gap.theirs)
    if ours is None or theirs is None or ours.device is None or theirs.device is None:
        return ""
    text = _(
        "A run is {own_launches} launches against {launches}; the device works {own_busy} against "
        "{busy}, and waits {own_gaps} against {gaps} between kernels."
    )
    return text.format(
        own_launches=ours.device.launches,
        launches=theirs.device.launches,
        own_busy=format_s(ours.busy_s),
        busy=format_s(theirs.busy_s),
        own_gaps=format_s(ours.device.gap_s if ours.waits_s is None else ours.waits_s),
        gaps=format_s(theirs.device.gap_s if theirs.waits_s is None else theirs.waits_s),
    )


def _parts(gap: Waterfall) -> str:
    """Describe the parts that make up most of the difference if they are few, else the largest."""
    total = gap.ours_s - gap.theirs_s
    causes = [b for b in gap.bars if b.delta_s * total > 0 and b.kind not in _NO_CAUSES]
    same = sorted(causes, key=lambda b: -abs(b.delta_s))
    if 2 * abs(sum(b.delta_s for b in same[:2])) >= abs(total):
        text = _("Against {theirs}, most of the difference of {total} is {named}.")
    elif len(same) > 2:
        text = _(
            "Of {count} parts of the difference of {total} to {theirs}, the largest are {named}."
        )
    else:
        return ""
    named = _(" and ").join(_named(b) for b in same[:2])
    theirs = clean(gap.theirs.name, NAME_LIMIT)
    return text.format(theirs=theirs, total=signed(total), named=named, count=len(same))


def _named(bar: Bar) -> str:
    return f"{clean(bar.label, LABEL_LIMIT)} ({signed(bar.delta_s)})"
