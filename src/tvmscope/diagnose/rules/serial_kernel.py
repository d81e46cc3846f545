"""Scheduled kernels that leave cores (on a GPU: multiprocessors) without work."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import loops, operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules.no_schedule import is_unscheduled
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

TOO_SMALL_S = 20e-6
"""Starting and joining threads costs a few microseconds: shorter calls are better off serial."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if is_serial(subject, k)]
        if found:
            yield _finding(subject, found, _units(subject))


def _units(subject: Subject) -> int:
    if subject.device == "cpu":
        return subject.cores
    return subject.target.attrs.get("multiprocessors", 0) if subject.target else 0


def is_serial(subject: Subject, kernel: Kernel) -> bool:
    """Whether a scheduled kernel, long enough for threads, has work for fewer than there are."""
    if kernel.ir is None or not kernel.ir.tree or is_unscheduled(kernel):
        return False
    if operators.is_tvm_scatter(kernel.name):
        return False  # hot-operator knows why, and what replaces them
    return kernel.per_call_s >= TOO_SMALL_S and loops.parallelism(kernel.ir) < _units(subject)


def _finding(subject: Subject, found: list[Kernel], units: int) -> Finding:
    saving = 0.0
    for kernel in found:
        assert kernel.ir is not None  # `is_serial` has asked
        saving += kernel.total_s - kernel.after(units / loops.parallelism(kernel.ir))
    widest = max(loops.parallelism(k.ir) for k in found if k.ir)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("A serial kernel leaves cores idle"),
        evidence=subject.says(
            msg(
                "{names} take {spent} on at most {widest} of {units} {what}. Estimated: time x "
                "(1 - used / {units}), not below the roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
                widest=widest,
                units=units,
                what=msg("cores") if subject.device == "cpu" else msg("multiprocessors"),
            )
        ),
        advice=msg(
            "Fuse outer loops until there are more iterations than cores, and mark them parallel; "
            "where the outer extents are 1, split the reduction (rfactor)."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(
    id="serial-kernel",
    title=msg("Parallel extent below the cores"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
