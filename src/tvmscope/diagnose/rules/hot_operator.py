"""Operators that mostly move data and still take much of the run: scatters, gathers, resizes ...

The estimate leaves each of them one pass over its data: at the memory roof where the bytes are
known; for repeated scatters, one of them in place of many.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.profile import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import _

HOT = 0.08
"""A family of operators over this share of the run is hot."""
_REACHED = 0.6
"""The part of the memory roof that a good copy kernel reaches."""
_ADVICE = {
    "scatter": _(
        "Do not write slices into a tensor one by one: collect them in a list and join them once "
        "with torch.cat or torch.stack; each scatter copies the whole tensor."
    ),
    "gather": _("Use slices where the indices are constant or form a range."),
    "resize": _("Use a whole-number scale and nearest mode where the model allows it."),
    "sort": _("Take only the top k, or move the step out of the model."),
    "transpose": _("Keep one layout through the model; transpose constants at compile time."),
    "copy": _("Write results into their place instead of joining or cutting them afterwards."),
}


def hot(subject: Subject) -> dict[str, list[Kernel]]:
    """The families of data movement that are hot, with their kernels."""
    found: dict[str, list[Kernel]] = {}
    for kernel in subject.kernels:
        family = operators.movement(kernel.name)
        if family in _ADVICE:
            found.setdefault(family, []).append(kernel)
    return {f: ks for f, ks in found.items() if sum(k.share for k in ks) >= HOT}


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        for family, kernels in hot(subject).items():
            yield _finding(subject, family, kernels)


def _finding(subject: Subject, family: str, found: list[Kernel]) -> Finding:
    calls = sum(k.time.calls for k in found)
    saving = sum(k.total_s for k in found) - _remaining(subject, family, found, calls)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=_("{family} takes much of the run").format(family=family),
        evidence=subject.says(
            _(
                "{calls} calls of {names} take {spent} and mostly move data. Estimated: {model}."
            ).format(
                calls=calls, names=listed(names(found)), spent=subject.spent(found),
                model=_("one call in place of {calls}").format(calls=calls)
                if family == "scatter" and calls > 1
                else _("one pass over the data at {share:.0%} of the memory roof").format(
                    share=_REACHED
                ),
            )
        ),
        advice=_ADVICE[family],
        kernels=names(found),
        source_ops=sources(found),
        saving_s=max(0.0, saving),
    )  # fmt: skip


def _remaining(subject: Subject, family: str, found: list[Kernel], calls: int) -> float:
    if family == "scatter" and calls > 1:
        return sum(k.total_s for k in found) / calls
    left = 0.0
    for kernel in found:
        memory_s = subject.limits.memory_s(kernel.time)
        # Without bytes nobody can tell what is left: then nothing is promised.
        left += kernel.total_s if memory_s is None else min(kernel.total_s, memory_s / _REACHED)
    return left


RULE = Rule(
    id="hot-operator",
    title=_("Hot operator that only moves data"),
    needs=("profiles",),
    check=check,
)
