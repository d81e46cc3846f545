"""Kernels that move their data as fast as the memory allows: no schedule makes them faster."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

AT_ROOF = 0.8


def at_roof(subject: Subject, kernel: Kernel) -> bool:
    """Whether memory limits the kernel, and almost nothing can be gained."""
    memory_s, compute_s = (
        subject.limits.memory_s(kernel.time), subject.limits.compute_s(kernel.time) or 0.0,
    )  # fmt: skip
    return memory_s is not None and memory_s >= max(compute_s, AT_ROOF * kernel.total_s)


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if at_roof(subject, k)]
        if found:
            yield _finding(subject, found)


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    lowest = min(k.roof_share or 0.0 for k in found)
    return Finding(
        rule=RULE.id,
        severity="info",
        effort="none",
        title=msg("These kernels are at the memory roof: there is nothing to gain"),
        evidence=subject.says(
            msg(
                "{names} take {spent} at {lowest:.0%} of the memory roof or more.",
                names=listed(names(found)),
                spent=subject.spent(found),
                lowest=lowest,
            )
        ),
        advice=msg(
            "Only less data helps: lower precision, more fusion, or a batch that uses each weight "
            "more than once."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=0.0,
    )


RULE = Rule(
    id="at-memory-roof",
    title=msg("Memory-bound at the roof"),
    needs=("profiles", "roofs"),
    check=check,
)
