"""Kernels that only rearrange data between other kernels: transposes, reorders, copies."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules.hot_operator import hot
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

MUCH = 0.03
"""The share of the run from which layout changes are reported."""
AVOIDABLE = 0.5
"""About every second one vanishes if its neighbours agree; inputs and outputs keep theirs."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        if found := worthwhile(subject):
            yield _finding(subject, found)


def worthwhile(subject: Subject) -> list[Kernel]:
    """Return the layout changes of a run that spends much time on several; else none."""
    taken = {k.name for kernels in hot(subject).values() for k in kernels}
    found = [k for k in subject.kernels if _is_layout(k) and k.name not in taken]
    several = sum(k.time.calls for k in found) > 1  # one is needed for the requested result format
    return found if several and sum(k.share for k in found) >= MUCH else []


def _is_layout(kernel: Kernel) -> bool:
    return kernel.time.kind == "layout" and operators.movement(kernel.name) != "cast"


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    saving = sum(k.total_s for k in found) * AVOIDABLE
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("Time goes into layout changes"),
        evidence=subject.says(
            msg(
                "{calls} calls of {names} take {spent} and only move data. Estimated: every "
                "second one can go.",
                calls=sum(k.time.calls for k in found),
                names=listed(names(found)),
                spent=subject.spent(found),
            )
        ),
        advice=msg(
            "Let neighbouring operators agree on one layout; an operator that the blocked layout "
            "does not know forces a change before and after it."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(
    id="layout-changes",
    title=msg("Layout changes between kernels"),
    needs=("profiles",),
    check=check,
)
