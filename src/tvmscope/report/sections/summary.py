"""Several models in one table: the outcome of each, and tvmscope against its best peer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvmscope.core import stats
from tvmscope.core.session import Session
from tvmscope.messages import Text, _, render
from tvmscope.report.sections.view import best, group, measured, unmeasured


@dataclass(frozen=True)
class Summary:
    """One model among several: its outcome, and tvmscope against its best peer."""

    model: str
    status: str
    own: str
    fastest: str
    speedup: str
    verdict: str
    reason: Text
    ratio: float | None


def summarize(session: Session) -> Summary:
    """Return a model's line in the table of several models."""
    rows, others = measured(session), unmeasured(session)
    own = best(rows, own=True)
    peers = [r for r in rows if own is None or group(r.result) == group(own.result)]
    peer = best(peers, own=False)
    fastest = min(rows, key=lambda r: r.median_s or 0.0, default=None)
    wrong = [r for r in others if r.result.status == "wrong"]
    failed = [r for r in others if r.result.status == "failed" and (r.is_own or not rows)]
    trouble = next(iter([*wrong, *failed]), None)
    reason: Text = f"{trouble.name}: {render(trouble.reason)}" if trouble else ""
    if not rows:
        reason = session.failure or reason or next((r.reason for r in others), "")
    status = trouble.result.status if trouble else "ok" if rows else "failed"
    return Summary(
        model=session.model.name,
        status=status if session.complete else "interrupted",
        own=own.median if own else "-",
        fastest=f"{fastest.name} {fastest.median}" if fastest else "-",
        speedup=peer.speedup if own and peer else "",
        verdict=peer.verdict if own and peer else "",
        reason=reason,
        ratio=peer.versus.speedup if own and peer and peer.versus else None,
    )


def geometric_mean(summaries: Iterable[Summary]) -> str | None:
    """Return the mean speed-up over models, as a sentence; None with fewer than two."""
    ratios = [s.ratio for s in summaries if s.ratio]
    if len(ratios) < 2:
        return None
    mean = stats.geometric_mean(ratios)
    text = _("geometric mean over {n} models: {mean:.2f}x against the best peer")
    return text.format(n=len(ratios), mean=mean)
