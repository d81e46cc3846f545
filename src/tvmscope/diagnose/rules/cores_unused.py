"""The run had fewer threads than the machine has cores.

Kernels with work for more threads are assumed to share it evenly, down to the roof of all cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.analysis import roofline
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import loops
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, subjects
from tvmscope.messages import msg

MUCH = 0.05


def check(session: Session) -> Iterator[Finding]:
    cores = session.environment.cores
    for subject in subjects(session):
        if subject.device != "cpu" or subject.row is None or subject.cores >= cores:
            continue
        roofs = roofline.limits(session, subject.profile, threads=cores)
        found = [k for k in subject.kernels if _parallel(k, cores) > subject.cores]
        saving = sum(_saved(subject, k, cores, roofs) for k in found)
        if saving >= MUCH * subject.run_s:
            yield _finding(subject, found, cores, saving)


def _parallel(kernel: Kernel, cores: int) -> int:
    """Return for how many of the cores a kernel has work."""
    return 1 if kernel.ir is None else min(cores, loops.parallelism(kernel.ir))


def _saved(subject: Subject, kernel: Kernel, cores: int, roofs: roofline.Limits) -> float:
    shared = kernel.total_s * subject.cores / _parallel(kernel, cores)
    return max(0.0, kernel.total_s - max(shared, roofs.least_s(kernel.time) or 0.0))


def _finding(subject: Subject, found: list[Kernel], cores: int, saving: float) -> Finding:
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes",
        title=msg("Cores are left idle"),
        evidence=subject.says(
            msg(
                "The run has {threads} of {cores} cores; {count} kernels with work for more take "
                "{spent}: {names}. Estimated: time x {threads} / {cores}, not below the roof of "
                "all cores.",
                threads=subject.cores,
                cores=cores,
                count=len(found),
                spent=subject.spent(found),
                names=listed(names(sorted(found, key=lambda k: -k.total_s))),
            )
        ),
        advice=msg("Omit --threads, unless the other cores have other work."),
        kernels=names(found),
        saving_s=saving,
        fix={"threads": cores},
    )


RULE = Rule(
    id="cores-unused",
    title=msg("Fewer threads than cores"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
