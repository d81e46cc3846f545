"""Elementwise kernels in a row: each reads and writes what one kernel would keep in registers.

Kernels of a profile stand in the order of their first call, so neighbours run one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tvmscope.core.profile import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import _

MUCH = 0.02
_LITTLE = 1.0
"""Flops per byte below which a kernel waits for its data and for nothing else."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        chains = [chain for chain in _chains(subject) if len(chain) > 1]
        found = [k for chain in chains for k in chain]
        if sum(k.share for k in found) >= MUCH:
            yield _finding(session, subject, chains, found)


def _chains(subject: Subject) -> list[list[Kernel]]:
    runs = groupby(subject.kernels, key=lambda k: operators.is_elementwise(k.name))
    return [list(kernels) for elementwise, kernels in runs if elementwise]


def _finding(
    session: Session, subject: Subject, chains: list[list[Kernel]], found: list[Kernel]
) -> Finding:
    saving = sum(_saved(chain) for chain in chains)
    off = "--disable-pass" in session.command and "fuse" in session.command
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes",
        title=_("Elementwise operators are not fused"),
        evidence=subject.says(
            _(
                "{calls} calls of elementwise kernels in a row ({names}) take {spent}. Estimated: "
                "those with little arithmetic become one pass, the others keep their time."
            ).format(
                calls=sum(k.time.calls for k in found), names=listed(names(found)),
                spent=subject.spent(found),
            )
        ),
        advice=_(
            "Look for what parts them: a pass that is switched off (fuse-ops), a reshape or an "
            "output of the model between them."
        ),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix={"disabled_passes": []} if off else {},
    )  # fmt: skip


def _saved(chain: list[Kernel]) -> float:
    """Kernels with little arithmetic become one pass; an exponential keeps its time."""
    passes = [k.total_s for k in chain if (k.intensity or 0.0) < _LITTLE]
    return sum(passes) - max(passes, default=0.0)


RULE = Rule(
    id="unfused-chain",
    title=_("Elementwise kernels in a row"),
    needs=("profiles",),
    check=check,
)
