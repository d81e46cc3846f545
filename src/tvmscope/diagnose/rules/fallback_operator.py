"""Kernels with much arithmetic that only the general fallback schedule takes."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis import remarks
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules import pass_disabled
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Text, msg, sentences

MUCH = 0.03
REUSE = 4.0
"""Flops per byte from which blocking pays off: below it, the fallback is the right schedule."""
REACHED = 0.5
"""The share of the roof that a first specific rule reaches."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [
            k
            for k in subject.heavy
            if k.share >= MUCH and _is_misplaced(k) and not pass_disabled.is_known(subject, k)
        ]
        if found:
            yield _finding(subject, found)


def _is_misplaced(kernel: Kernel) -> bool:
    if kernel.ir is None or not (kernel.ir.rule or "").endswith("fallback"):
        return False
    if operators.families(kernel.name) is not None:
        return False  # only elementwise work and copies: there is nothing to block
    if kernel.intensity is None or kernel.intensity < REUSE:
        return False
    return kernel.roof_share is None or kernel.roof_share < REACHED


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    known = [k for k in found if k.least_s is not None]
    saving = sum(k.total_s - k.after(float("inf"), REACHED) for k in known) if known else None
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving) if known else "medium",
        effort="hours",
        title=msg("Operators with much arithmetic run with the fallback schedule"),
        evidence=subject.says(
            sentences(
                msg(
                    "{names} take {spent} at {intensity:.0f} flops per byte or more, with no "
                    "blocking.",
                    names=listed(names(found)),
                    spent=subject.spent(found),
                    intensity=min(k.intensity or 0.0 for k in found),
                ),
                _failed(subject, found),
                msg("Estimated: down to {reached:.0%} of the roof.", reached=REACHED),
            )
        ),
        advice=msg("Write a schedule rule for this loop pattern."),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


def _failed(subject: Subject, found: list[Kernel]) -> Text | None:
    """Name the rules that tried and raised, according to the build's remarks."""
    wanted = set(names(found))
    told = remarks.failed_rules(subject.row.warnings if subject.row else ())
    failed = [rule for rule, kernel in told if kernel in wanted]
    if not failed:
        return None
    return msg("Rules that failed on them: {names}.", names=listed(dict.fromkeys(failed)))


RULE = Rule(
    id="fallback-operator",
    title=msg("Arithmetic under the fallback schedule"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
