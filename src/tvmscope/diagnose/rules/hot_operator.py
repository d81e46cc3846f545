"""Operators that mostly move data and still take much of the run: scatters, gathers, resizes ...

The estimate leaves each of them one pass over its data, at the memory roof if it is known, else at
the rate of the fastest kernel of the same run. For repeated scatters that a pass has already made
fast, it replaces many by one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Text, msg

HOT = 0.08
"""A family of operators above this share of the run is hot."""
HOT_WITH_FIX = 0.02
"""Operators that a pass can replace are reported from a smaller share on."""
PASS = "fast-scatter"
_REACHED = 0.6
"""The share of the memory roof that a good copy kernel reaches."""
_ADVICE = {
    "scatter": msg(
        "Do not write slices into a tensor one by one: collect them in a list and join them once "
        "with torch.cat or torch.stack; each scatter copies the whole tensor."
    ),
    "gather": msg("Use slices where the indices are constant or form a range."),
    "resize": msg("Use a whole-number scale and nearest mode where the model allows it."),
    "sort": msg("Take only the top k, or move the step out of the model."),
    "transpose": msg("Keep one layout through the model; transpose constants at compile time."),
    "copy": msg(
        "Write results directly to their destination instead of concatenating or slicing "
        "them afterwards."
    ),
}


def hot(subject: Subject) -> dict[str, list[Kernel]]:
    """Return the hot families of data movement, with their kernels."""
    found: dict[str, list[Kernel]] = {}
    for kernel in subject.kernels:
        family = operators.movement(kernel.name)
        if family in _ADVICE:
            found.setdefault(family, []).append(kernel)
    return {f: ks for f, ks in found.items() if sum(k.share for k in ks) >= _limit(ks)}


def _limit(kernels: list[Kernel]) -> float:
    return HOT_WITH_FIX if any(operators.is_tvm_scatter(k.name) for k in kernels) else HOT


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        for family, kernels in hot(subject).items():
            yield _finding(subject, family, kernels)


def _finding(subject: Subject, family: str, found: list[Kernel]) -> Finding:
    calls = sum(k.time.calls for k in found)
    old = any(operators.is_tvm_scatter(k.name) for k in found)
    merge = family == "scatter" and not old and calls > 1
    left = sum(k.total_s for k in found) / calls if merge else _one_pass(subject, found)
    saving = max(0.0, sum(k.total_s for k in found) - left)
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes" if old else "hours",
        title=msg("{family} takes much of the run", family=family),
        evidence=subject.says(
            msg(
                "{calls} calls of {names} take {spent} and {what}. Estimated: {model}.",
                calls=calls,
                names=listed(names(found)),
                spent=subject.spent(found),
                what=msg("go through their indices one by one") if old else msg("mostly move data"),
                model=msg("one call in place of {calls}", calls=calls) if merge else _rate(subject),
            )
        ),
        advice=_fix_advice(subject) if old else _ADVICE[family],
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix=_fix(subject) if old else {},
    )


def _fix(subject: Subject) -> dict[str, object]:
    """Return the override that enables the pass, which our pipeline has unless it was disabled."""
    return (
        {"disabled_passes": []} if subject.key.variant.uses_our_passes else {"pipeline": "tvmscope"}
    )


def _fix_advice(subject: Subject) -> Text:
    if subject.key.variant.uses_our_passes:
        return msg(
            "Leave the pass {name} on: each element of the result then looks up its update, in "
            "parallel.",
            name=PASS,
        )
    return msg("Compile with the tvmscope pipeline, whose pass {name} replaces them.", name=PASS)


def _rate(subject: Subject) -> Text:
    if subject.limits.levels:
        return msg("one pass over the data at {share:.0%} of the memory roof", share=_REACHED)
    return msg("one pass over the data at the rate of this run's fastest kernel")


def _one_pass(subject: Subject, found: list[Kernel]) -> float:
    """Return the saving; without a byte count there is no estimate, and nothing is promised."""
    rates = [k.time.bytes / k.total_s for k in subject.kernels if k.time.bytes and k.total_s > 0]
    left = 0.0
    for kernel in found:
        moved, memory_s = kernel.time.bytes, subject.limits.memory_s(kernel.time)
        if memory_s is not None:
            least = memory_s / _REACHED
        else:
            least = kernel.total_s if moved is None else moved / max(rates)
        left += min(kernel.total_s, least)
    return left


RULE = Rule(
    id="hot-operator",
    title=msg("Hot operator that only moves data"),
    needs=("profiles",),
    check=check,
)
