"""Tuned rows that are slower than the same row without tuning."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core import stats
from tvmscope.core.comparison import compare
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.measurement import Result
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import listed
from tvmscope.errors import Incomparable
from tvmscope.messages import Seconds, msg, sentences

WORSE = 1.1
"""A kernel that became slower by this factor is listed."""


def check(session: Session) -> Iterator[Finding]:
    for tuned in session.results:
        if tuned.task.variant.tuning is None:
            continue
        plain = next((r for r in session.results if _is_untuned(r, tuned)), None)
        if plain is not None and _is_slower(tuned, plain):
            yield _finding(session, tuned, plain)


def _is_untuned(row: Result, tuned: Result) -> bool:
    a, b = row.key, tuned.key
    return a.variant.tuning is None and (a.group, a.variant.pipeline, a.variant.graph) == (
        b.group, b.variant.pipeline, b.variant.graph
    )  # fmt: skip


def _is_slower(tuned: Result, plain: Result) -> bool:
    try:
        return compare(tuned, plain).verdict == "slower"
    except Incomparable:
        return False  # one of them failed, or they measure different things


def _finding(session: Session, tuned: Result, plain: Result) -> Finding:
    assert tuned.measurement is not None  # `compare` has checked it
    assert plain.measurement is not None
    new, old = stats.median_s(tuned.measurement), stats.median_s(plain.measurement)
    worse = _worse_kernels(session, tuned, plain)
    return Finding(
        rule=RULE.id,
        severity="high",
        effort="retune",
        title=msg("Tuning made it slower"),
        evidence=sentences(
            msg(
                "{tuned} takes {new}, {plain} {old}, measured in turns.",
                tuned=tuned.key.name,
                new=Seconds(new),
                plain=plain.key.name,
                old=Seconds(old),
            ),
            msg("Slower by a tenth or more: {names}.", names=listed(worse)) if worse else None,
        ),
        advice=msg("Remove these records, or tune again on an idle machine."),
        kernels=worse,
        saving_s=new - old,
    )


def _worse_kernels(session: Session, tuned: Result, plain: Result) -> tuple[str, ...]:
    new, old = _kernel_times(session, tuned), _kernel_times(session, plain)
    return tuple(name for name, time in new.items() if time > old.get(name, time) * WORSE)


def _kernel_times(session: Session, row: Result) -> dict[str, float]:
    """Return the seconds of each kernel of a row; empty if it has no profile."""
    times: dict[str, float] = {}
    for profile in session.profiles:
        if session.result_of(profile) is row:
            for kernel in profile.kernels:
                times[kernel.name] = times.get(kernel.name, 0.0) + kernel.total_s
    return times


RULE = Rule(
    id="tuned-slower",
    title=msg("Tuned slower than untuned"),
    needs=("results",),
    check=check,
)
