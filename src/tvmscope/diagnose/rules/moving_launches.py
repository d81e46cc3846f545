"""Launches on a GPU that compute nothing: each costs a start, however little it moves."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.analysis import moves as moved
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules import hot_operator, layout_changes
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Text, msg

EDGES = 2
"""One at the input and one at the output are needed for the requested formats: so many are left
alone where it is not known which launches those are."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        if subject.device != "cuda" or layout_changes.worthwhile(subject):
            continue
        taken = {k.name for kernels in hot_operator.hot(subject).values() for k in kernels}
        found = [k for k in subject.kernels if k.time.kind == "layout" and k.name not in taken]
        moves = moved.located([k.time for k in found])
        if moves is None:
            if sum(k.time.calls for k in found) > EDGES:
                yield _unlocated(subject, found)
        elif any(moves.spare):
            yield _located(subject, found, moves)


def _located(subject: Subject, found: list[Kernel], moves: moved.Moves) -> Finding:
    spare = [(k, n) for k, n in zip(found, moves.spare, strict=True) if n]
    blamed = [k for k, _ in spare]
    text = msg(
        "{moves} of {launches} launches only move data: {inputs} at the inputs, {outputs} at the "
        "outputs, {between} in between. One for each input and output may be needed. The others "
        "are {names}, which take {spent}. Estimated: {count} launches can go.",
        moves=sum(k.time.calls for k in found),
        launches=_launches(subject),
        inputs=moves.inputs,
        outputs=moves.outputs,
        between=moves.between,
        names=listed(names(blamed)),
        spent=subject.spent(blamed),
        count=sum(moves.spare),
    )
    return _finding(subject, blamed, text, sum(k.per_call_s * n for k, n in spare))


def _unlocated(subject: Subject, found: list[Kernel]) -> Finding:
    moves = sum(k.time.calls for k in found)
    text = msg(
        "{moves} of {launches} launches only move data: {names}. They take {spent}. "
        "Estimated: all but {edges} of them can go.",
        moves=moves,
        launches=_launches(subject),
        names=listed(names(found)),
        spent=subject.spent(found),
        edges=EDGES,
    )
    spent = sum(k.total_s for k in found)
    return _finding(subject, found, text, spent * (moves - EDGES) / moves)


def _launches(subject: Subject) -> int:
    return sum(k.time.calls for k in subject.kernels)


def _finding(subject: Subject, found: list[Kernel], evidence: Text, saving: float) -> Finding:
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="hours",
        title=msg("Launches that only move data"),
        evidence=subject.says(evidence),
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
