"""Scheduled CPU kernels whose hottest statement is in no vector loop and runs at a scalar rate."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import loops, operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules import pass_disabled
from tvmscope.diagnose.rules.no_schedule import is_unscheduled
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

_SCALAR_SLACK = 2.0
"""LLVM vectorises some loops by itself: twice the scalar rate shows that it did."""
_GAIN = 0.5
"""The share of a vector's lanes that becomes a speed-up: loads and tails take the rest."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if is_scalar(subject, k)]
        if found:
            yield _finding(subject, found)


def is_scalar(subject: Subject, kernel: Kernel) -> bool:
    """Whether a scheduled CPU kernel has no vector loop and runs at a scalar rate."""
    if subject.device != "cpu" or subject.lanes() < 2:
        return False
    if kernel.ir is None or not kernel.ir.tree or is_unscheduled(kernel):
        return False
    if pass_disabled.is_known(subject, kernel) or operators.is_tvm_scatter(kernel.name):
        return False  # other rules explain it
    if loops.is_vectorized(kernel.ir):
        return False
    compute_s = subject.limits.compute_s(kernel.time)
    memory_s = subject.limits.memory_s(kernel.time)
    fast = compute_s is not None and kernel.total_s < compute_s * subject.lanes() / _SCALAR_SLACK
    bound = memory_s is not None and kernel.total_s < memory_s * _SCALAR_SLACK
    return not fast and not bound


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    gain = max(1.0, subject.lanes() * _GAIN)
    saving = sum(k.total_s - k.after(gain) for k in found)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("A hot loop is not vectorised"),
        evidence=subject.says(
            msg(
                "{names} take {spent} with no vector loop around their hottest statement, on a "
                "CPU with vectors of {lanes} floats. Estimated: {gain:.0f} times as fast, not "
                "below the roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
                lanes=subject.lanes(),
                gain=gain,
            )
        ),
        advice=msg(
            "Bring a loop with unit stride innermost, split it by the vector width and vectorize "
            "it; where no extent divides, pad the data."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(
    id="not-vectorized",
    title=msg("Hot loops without vectors"),
    needs=("profiles", "kernel_ir", "targets"),
    check=check,
)
