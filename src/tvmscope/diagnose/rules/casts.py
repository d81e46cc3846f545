"""Conversions between number types that run as separate kernels."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

MUCH = 0.03
"""The share of the run from which casts are reported; inputs and outputs need some."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.kernels if operators.movement(k.name) == "cast"]
        calls = sum(k.time.calls for k in found)
        if calls > 1 and sum(k.share for k in found) >= MUCH:
            yield _finding(subject, found, calls)


def _finding(subject: Subject, found: list[Kernel], calls: int) -> Finding:
    saving = sum(k.total_s for k in found) * (1 - 1 / calls)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("Time goes into casts"),
        evidence=subject.says(
            msg(
                "{calls} calls of {names} take {spent}. Estimated: one cast stays, at the model's "
                "edge.",
                calls=calls,
                names=listed(names(found)),
                spent=subject.spent(found),
            )
        ),
        advice=msg(
            "Keep one number type through the model: an operator that needs another type costs a "
            "cast before and after it."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(id="casts", title=msg("Casts as kernels"), needs=("profiles",), check=check)
