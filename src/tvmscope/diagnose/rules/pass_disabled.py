"""Optimisations that were disabled, each with the kernels that show it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import estimate
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg, sentences, word


def lacking(subject: Subject, name: str) -> list[Kernel]:
    """Return the kernels that a pass would have changed, according to its manifest."""
    facts = subject.lacks(name)
    if facts.kernels is None:
        return []
    pattern = re.compile(facts.kernels)
    named = [k for k in subject.heavy if pattern.search(k.name)]
    return [k for k in named if not facts.only_unscheduled or _is_fallback(k)]


def is_known(subject: Subject, kernel: Kernel) -> bool:
    """Whether a disabled pass explains a kernel."""
    return any(kernel in lacking(subject, name) for name in subject.disabled)


def _is_fallback(kernel: Kernel) -> bool:
    return kernel.ir is not None and (kernel.ir.rule or "fallback").endswith("fallback")


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        for name in subject.left_to(RULE.id):
            yield _finding(subject, name, lacking(subject, name))


def _finding(subject: Subject, name: str, found: list[Kernel]) -> Finding:
    saving = estimate.saved_s(subject, found) if found else None
    told = msg("1 of our passes did not run; its effect cannot be estimated.")
    if found:
        told = msg(
            "{names} take {spent} without it. Estimated: {basis}.",
            names=listed(names(found)),
            spent=subject.spent(found),
            basis=estimate.basis(subject),
        )
    words = subject.lacks(name).words
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving) if found else "low",
        effort="minutes",
        title=msg("The pass {name} is switched off", name=name),
        evidence=subject.says(told if not words else sentences(word(words), told)),
        advice=msg("Omit --disable-pass {name}.", name=name),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix={"disabled_passes": [x for x in subject.disabled if x != name]},
    )


RULE = Rule(
    id="pass-disabled",
    title=msg("Optimisations that are switched off"),
    needs=("profiles",),
    check=check,
)
