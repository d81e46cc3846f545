"""Applies an attempted fix to a session: the prediction, the verdict, and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvmscope.benchmark.compare import compare_all
from tvmscope.core.comparison import verdict
from tvmscope.core.diagnosis.findings import Attempt, Finding
from tvmscope.core.measurement import Result
from tvmscope.core.row import RowKey
from tvmscope.core.session import Session
from tvmscope.core.stats import difference_interval, ratio_interval
from tvmscope.core.target import Target
from tvmscope.messages import Message, Seconds, Text, msg, word


def promise(finding: Finding, key: RowKey) -> Attempt:
    """Predict what a finding's fix will save in a row, before anything is built."""
    return Attempt(
        rule=finding.rule,
        title=finding.title,
        key=key,
        fix=finding.fix,
        predicted_s=finding.saving_s,
    )


def judge(attempt: Attempt, old: Result, new: Result) -> Attempt:
    """Keep a fix if its result is correct and significantly faster."""
    if new.status == "wrong":
        return undone(attempt, msg("wrong result: {why}", why=new.reason or ""))
    for row in (new, old):
        if row.status != "ok" or row.measurement is None:
            why = row.reason or ""
            text = msg("{row} could not be measured: {why}", row=row.task.label, why=why)
            return undone(attempt, text)
    assert old.measurement is not None  # checked above
    assert new.measurement is not None
    rounds = old.measurement.rounds_s, new.measurement.rounds_s
    ratio = ratio_interval(*rounds)
    achieved, interval = difference_interval(*rounds)
    call = verdict(ratio)
    kept = call == "faster"
    reason = msg("{ratio:.3g} times as fast", ratio=ratio.ratio)
    if not kept:
        reason = msg("not faster: {ratio:.3g}x, {call}", ratio=ratio.ratio, call=word(call))
    return replace(
        attempt,
        achieved_s=achieved,
        ci95_s=interval,
        outcome="kept" if kept else "reverted",
        reason=reason,
    )


def undone(attempt: Attempt, reason: Text) -> Attempt:
    return replace(attempt, outcome="reverted", reason=reason)


def with_attempt(session: Session, attempt: Attempt, at: int | None = None) -> Session:
    """Return the session with one more attempt, or with the attempt number `at` completed."""
    done = session.fixes if at is None else session.fixes[: at - 1]
    findings = tuple(
        replace(f, achieved_s=attempt.achieved_s)
        if (f.rule, f.title) == (attempt.rule, attempt.title)
        else f
        for f in session.findings
    )
    return replace(session, fixes=(*done, attempt), findings=findings)


def superseded(session: Session, gone: RowKey | None, target: Target, result: Result) -> Session:
    """Return the session with the new row and without an earlier fixed one."""
    known = {t.label: t for t in (*session.targets, target)}
    old = [r for r in session.results if r.key != gone]
    changed = replace(session, targets=tuple(known.values()), results=tuple(old))
    return with_results(changed, (result,))


def without_profile(session: Session, gone: RowKey | None) -> Session:
    """Return the session without what was known about a row's kernels."""
    if gone is None:
        return session
    return replace(
        session,
        profiles=tuple(p for p in session.profiles if p.key != gone),
        kernel_ir=tuple(k for k in session.kernel_ir if k.key != gone),
    )


def without_stale(session: Session, results: Sequence[Result]) -> Session:
    """Return the session without the profiles of rows whose number of threads has changed."""
    threads = {r.key: r.task.threads for r in results}
    stale = {r.key for r in session.results if threads.get(r.key, r.task.threads) != r.task.threads}
    kept = tuple(p for p in session.profiles if p.key not in stale)
    return replace(session, profiles=kept)


def with_results(session: Session, results: Sequence[Result]) -> Session:
    """Return the session with rows replaced by key, or appended."""
    new = {r.key: r for r in results}
    old = {r.key: r for r in session.results}
    rows = tuple((old | new).values())
    return replace(session, results=rows, comparisons=compare_all(rows))


def tell(attempt: Attempt, number: int) -> Message:
    """Report an attempt in one line."""
    if attempt.outcome == "open":
        return msg(
            "fix {number}: {title}; predicted to save {time}",
            number=number,
            title=attempt.title,
            time=Seconds(attempt.predicted_s),
        )
    return msg(
        "fix {number}: {outcome}, {reason}; saved {time}",
        number=number,
        outcome=word(attempt.outcome),
        reason=attempt.reason,
        time=Seconds(attempt.achieved_s),
    )
