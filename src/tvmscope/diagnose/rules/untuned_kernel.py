"""Heavy kernels far below their roof, with a general schedule and no search."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose import operators
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.rules.launch_bound import TINY_S
from tvmscope.diagnose.rules.no_schedule import is_unscheduled
from tvmscope.diagnose.rules.not_vectorized import is_scalar
from tvmscope.diagnose.rules.serial_kernel import is_serial
from tvmscope.diagnose.rules.target_feature_unused import missing_features
from tvmscope.diagnose.rules.tensor_cores_unused import misses_tensor_cores
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Seconds, msg

HEAVY = 0.05
LOW = 0.6
"""Below this share of its roof, a kernel has headroom worth a search."""
REACHED = 0.8
"""The share that a good schedule reaches; the estimate assumes no more."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        if subject.key.variant.tuning is not None:
            continue
        if subject.target is not None and missing_features(session, subject.target):
            continue  # tune code that is built for this machine
        found = [k for k in subject.heavy if k.share >= HEAVY and _has_headroom(subject, k)]
        if found:
            yield _finding(subject, found)


def _has_headroom(subject: Subject, kernel: Kernel) -> bool:
    """Whether the kernel is far below the roof, does arithmetic, and has no simpler known cause."""
    reached, ir = kernel.roof_share, kernel.ir
    if reached is None or reached >= LOW or ir is None or is_unscheduled(kernel):
        return False
    if not kernel.time.flops or operators.families(kernel.name) is not None:
        return False
    if (ir.rule or "").endswith("fallback"):
        return False
    if subject.device == "cuda" and kernel.per_call_s < TINY_S["cuda"]:
        return False  # latency bounds it, not the roof
    return not any(
        simpler(subject, kernel) for simpler in (is_serial, is_scalar, misses_tensor_cores)
    )


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    saving = sum(k.total_s - k.after(float("inf"), REACHED) for k in found)
    worst = found[0]
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="retune",
        title=msg("Heavy kernels are untuned"),
        evidence=subject.says(
            msg(
                "{names} take {spent}; {worst} takes {time} at {share:.0%} of its roof. Estimated: "
                "down to {reached:.0%} of the roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
                worst=listed([worst.name]),
                time=Seconds(worst.total_s),
                share=worst.roof_share or 0.0,
                reached=REACHED,
            )
        ),
        advice=msg("Search for better tile sizes and loop orders with tvmscope tune."),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
    )


RULE = Rule(
    id="untuned-kernel",
    title=msg("Heavy kernels that were not tuned"),
    needs=("profiles", "kernel_ir", "roofs"),
    check=check,
)
