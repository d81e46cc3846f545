"""Kernels without a schedule: their loops run as written, on one core, value by value."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import estimate, loops
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg


def is_unscheduled(kernel: Kernel) -> bool:
    """Whether no rule took the kernel, and no loop has a schedule's annotation."""
    ir = kernel.ir
    return ir is not None and ir.rule is None and bool(ir.tree) and loops.is_plain(ir)


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if is_unscheduled(k)]
        if found:
            yield _finding(subject, found)


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    saving = estimate.saved_s(subject, found)
    fix = _fix(subject)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes" if fix else "hours",
        title=msg("No schedule was applied"),
        evidence=subject.says(
            msg(
                "{count} kernels take {spent} with every loop serial: {names}. Estimated: {basis}.",
                count=len(found),
                spent=subject.spent(found),
                names=listed(names(found)),
                basis=estimate.basis(subject),
            )
        ),
        advice=msg("Compile with the tvmscope pipeline, which schedules every kernel.")
        if fix
        else msg(
            "Write a schedule rule for them (compiler/schedules): no rule takes these kernels."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix=fix,
    )


def _fix(subject: Subject) -> dict[str, object]:
    """Return the override: our pipeline with its schedules; nothing if it already ran whole."""
    scheduling = subject.left_to(RULE.id)
    left = [name for name in subject.disabled if name not in scheduling]
    fix: dict[str, object] = {}
    if subject.key.variant.pipeline != "tvmscope":
        fix["pipeline"] = "tvmscope"
    if len(left) < len(subject.disabled):
        fix["disabled_passes"] = left
    return fix


RULE = Rule(
    id="no-schedule",
    title=msg("Kernels without a schedule"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
