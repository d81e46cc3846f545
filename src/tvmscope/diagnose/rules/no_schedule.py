"""Kernels that no schedule touched: their loops run as written, on one core, value by value."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.profile import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import loops
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import _

REACHED = 0.7
"""The part of the roof that our schedules reach on the built-in models, by and large."""


def is_unscheduled(kernel: Kernel) -> bool:
    """Taken by no rule, and with no loop that a schedule has marked."""
    ir = kernel.ir
    return ir is not None and ir.rule is None and bool(ir.tree) and loops.is_plain(ir)


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if is_unscheduled(k)]
        if found:
            yield _finding(subject, found)


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    saving = sum(k.total_s - k.after(_gain(subject), REACHED) for k in found)
    ours = subject.row is not None and subject.row.task.variant.pipeline == "tvmscope"
    advice = (
        _("Write a schedule rule for them (compiler/schedules): no rule takes these kernels.")
        if ours
        else _("Compile with the tvmscope pipeline, which schedules every kernel.")
    )
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours" if ours else "minutes",
        title=_("No schedule was applied"),
        evidence=subject.says(
            _(
                "{count} kernels take {spent} with every loop serial: {names}. Estimated: {cores} "
                "threads and vectors of {lanes}, up to {reached:.0%} of the roof."
            ).format(
                count=len(found), spent=subject.spent(found), names=listed(names(found)),
                cores=subject.cores, lanes=subject.lanes(), reached=REACHED,
            )
        ),
        advice=advice,
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix={} if ours else {"pipeline": "tvmscope"},
    )  # fmt: skip


def _gain(subject: Subject) -> float:
    """What threads and vectors can bring; the roof decides where it is known and lower."""
    return float(subject.cores * subject.lanes()) if subject.device == "cpu" else 32.0


RULE = Rule(
    id="no-schedule",
    title=_("Kernels without a schedule"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
