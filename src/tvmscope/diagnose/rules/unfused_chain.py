"""Consecutive elementwise kernels: each reads and writes what one would keep in registers.

Kernels of a profile are in the order of their first call, so neighbours run one after another. If
fusion is disabled, a single elementwise kernel counts, too: it would have been the last step of the
kernel before it, which has its result in registers; only further operands would be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import prod

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

MUCH = 0.02
_LITTLE = 1.0
"""Flops per byte below which only data transfers limit a kernel."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        off = subject.left_to(RULE.id)
        chains = _chains(subject, 1 if off else 2)
        found = [k for chain in chains for k in chain]
        if sum(k.share for k in found) >= MUCH:
            yield _finding(subject, chains, off)


def _chains(subject: Subject, shortest: int) -> list[list[Kernel]]:
    runs = groupby(subject.kernels, key=lambda k: operators.is_elementwise(k.name))
    chains = (list(kernels) for elementwise, kernels in runs if elementwise)
    return [chain for chain in chains if len(chain) >= shortest]


def _finding(subject: Subject, chains: list[list[Kernel]], off: list[str]) -> Finding:
    found = [k for chain in chains for k in chain]
    saving = sum(map(_absorbed, found)) if off else sum(map(_joined, chains))
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes",
        title=msg("Elementwise operators are not fused"),
        evidence=subject.says(
            msg(
                "{calls} calls of elementwise kernels ({names}) take {spent}. Estimated: {model}.",
                calls=sum(k.time.calls for k in found),
                names=listed(names(found)),
                spent=subject.spent(found),
                model=msg("they join the kernels before them and read only further operands")
                if off
                else msg(
                    "those with little arithmetic become one pass, the others keep their time"
                ),
            )
        ),
        advice=msg("Do not disable {passes}.", passes=off)
        if off
        else msg("Look for what separates them: a reshape or an output of the model between them."),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix={"disabled_passes": [x for x in subject.disabled if x not in off]} if off else {},
    )  # fmt: skip


def _joined(chain: list[Kernel]) -> float:
    """Return the saving if kernels with little arithmetic merge; an exponential keeps its time."""
    passes = [k.total_s for k in chain if (k.intensity or 0.0) < _LITTLE]
    return sum(passes) - max(passes, default=0.0)


def _absorbed(kernel: Kernel) -> float:
    """Return the saving: of n full-size tensors, two vanish, its first operand and its result."""
    if (kernel.intensity or 0.0) >= _LITTLE:
        return 0.0
    sizes = [prod(b.shape) for b in kernel.ir.buffers if b.scope == "global"] if kernel.ir else []
    full = sum(size == max(sizes) for size in sizes)
    return kernel.total_s * (2 / full if full > 2 else 1.0)


RULE = Rule(
    id="unfused-chain",
    title=msg("Elementwise kernels in a row"),
    needs=("profiles",),
    check=check,
)
