"""Launches on a GPU that compute nothing: each costs a start, however little it moves."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules import hot_operator, layout_changes
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

EDGES = 2
"""One at the input and one at the output are needed for the requested formats."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        if subject.device != "cuda" or layout_changes.worthwhile(subject):
            continue
        taken = {k.name for kernels in hot_operator.hot(subject).values() for k in kernels}
        found = [k for k in subject.kernels if k.time.kind == "layout" and k.name not in taken]
        if sum(k.time.calls for k in found) > EDGES:
            yield _finding(subject, found)


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    moves = sum(k.time.calls for k in found)
    launches = sum(k.time.calls for k in subject.kernels)
    spent = sum(k.total_s for k in found)
    saving = spent * (moves - EDGES) / moves
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("Launches that only move data"),
        evidence=subject.says(
            msg(
                "{moves} of {launches} launches only move data: {names}. They take {spent}. "
                "Estimated: all but {edges} of them can go.",
                moves=moves,
                launches=launches,
                names=listed(names(found)),
                spent=subject.spent(found),
                edges=EDGES,
            )
        ),
        advice=msg(
            "Let the previous kernel write, or the next one read, in the order and type that "
            "the other has; give inputs in the type and layout that the model computes in."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(
    id="moving-launches",
    title=msg("Launches that only move data"),
    needs=("profiles",),
    check=check,
)
