"""Scheduled kernels that leave cores (on a GPU: multiprocessors) without work."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import loops, operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules.no_schedule import is_unscheduled
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

TOO_SMALL_S = 20e-6
"""Starting and joining threads takes a few microseconds: shorter calls are faster serially."""
EVEN = 0.8
"""If cores are busy for at least this share of a kernel's time, its iterations are balanced."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [k for k in subject.heavy if is_serial(subject, k) or _is_uneven(subject, k)]
        if found:
            yield _finding(subject, found, _units(subject))


def _units(subject: Subject) -> int:
    if subject.device == "cpu":
        return subject.cores
    return subject.target.attrs.get("multiprocessors", 0) if subject.target else 0


def is_serial(subject: Subject, kernel: Kernel) -> bool:
    """Whether a scheduled kernel, long enough for threads, has work for too few of them."""
    if not _is_scheduled(kernel) or kernel.per_call_s < TOO_SMALL_S:
        return False
    return _tasks(kernel) < _units(subject)


def _is_uneven(subject: Subject, kernel: Kernel) -> bool:
    """Whether some cores wait long for the one with the most iterations.

    TVM gives each thread an equal part of a parallel loop's iterations: three of them on two cores
    take as long as four. A GPU's multiprocessor takes several blocks at once, so that the number of
    blocks alone says nothing.
    """
    if subject.device != "cpu" or not _is_scheduled(kernel) or kernel.per_call_s < TOO_SMALL_S:
        return False
    return _busy(kernel, subject.cores) < EVEN * subject.cores


def _is_scheduled(kernel: Kernel) -> bool:
    if kernel.ir is None or not kernel.ir.tree or is_unscheduled(kernel):
        return False
    return not operators.is_tvm_scatter(kernel.name)  # hot-operator explains them


def _tasks(kernel: Kernel) -> int:
    assert kernel.ir is not None  # `_is_scheduled` has checked it
    return loops.parallelism(kernel.ir)


def _busy(kernel: Kernel, units: int) -> float:
    """Return how many of the units work at a time, on average."""
    return _tasks(kernel) / math.ceil(_tasks(kernel) / units)


def _finding(subject: Subject, found: list[Kernel], units: int) -> Finding:
    saving = sum(k.total_s - k.after(units / _busy(k, units)) for k in found)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("A serial kernel leaves cores idle"),
        evidence=subject.says(
            msg(
                "{names} take {spent} and keep at most {busy:.3g} of {units} {what} busy. "
                "Estimated: time x (1 - busy / {units}), not below the roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
                busy=max(_busy(k, units) for k in found),
                units=units,
                what=msg("cores") if subject.device == "cpu" else msg("multiprocessors"),
            )
        ),
        advice=msg(
            "Fuse outer loops until there are more iterations than cores, or a multiple of the "
            "cores, and mark them parallel; where the outer extents are 1, split the reduction "
            "(rfactor)."
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
