"""Estimates what a kernel's time can become, from measurements: the roofs and the other backends.

A share of the roof is what our schedules reach if nothing else limits them, the fastest other
backend's time for the same operators is what has been reached: the first is mostly too low, the
second mostly too high. If both are known, the estimate is their geometric mean.
"""

from __future__ import annotations

from collections.abc import Iterable

from tvmscope.core.stats import geometric_mean
from tvmscope.diagnose.view import Kernel, Subject
from tvmscope.messages import Text, msg

COMPUTE = 0.9
"""The share of the compute roof that our blocked kernels reach: 91 % over ResNet-50's direct
convolutions, 83 to 100 % over single ones and matmuls (docs/benchmarks.md)."""
MEMORY = 0.6
"""The share of the memory roof that a good copy kernel reaches: the roof was measured with reads,
but a copy also writes."""


def saved_s(subject: Subject, kernels: Iterable[Kernel], most: float = float("inf")) -> float:
    """Return the saving if each of these kernels becomes as fast as is known to be possible.

    No kernel becomes more than `most` times as fast. If nothing is known, the saving is 0.
    """
    wanted = {k.name for k in kernels}
    found = [k for k in subject.kernels if k.name in wanted]
    return sum(k.total_s - max(reachable_s(subject, k), k.total_s / most) for k in found)


def reachable_s(subject: Subject, kernel: Kernel) -> float:
    """Return the time that a kernel can reach; its present time if nothing is known."""
    known = [t for t in (_by_roof(subject, kernel), _by_peer(subject, kernel)) if t]
    return min(kernel.total_s, geometric_mean(known)) if known else kernel.total_s


def _by_roof(subject: Subject, kernel: Kernel) -> float:
    compute, memory = subject.limits.compute_s(kernel.time), subject.limits.memory_s(kernel.time)
    return max((compute or 0.0) / COMPUTE, (memory or 0.0) / MEMORY)


def _by_peer(subject: Subject, kernel: Kernel) -> float | None:
    """Return the time by the first known operator: all operators of a kernel are in one group."""
    shown = (subject.peers[op] for op in kernel.time.source_ops if op in subject.peers)
    ratio = next(shown, None)
    return None if ratio is None else kernel.total_s * ratio


def basis(subject: Subject) -> Text:
    """Say where the estimate comes from, for the evidence."""
    if subject.peers:
        return msg(
            "the mean of {compute:.0%} of the compute roof (memory: {memory:.0%}) and the fastest "
            "other backend's time for the same operators",
            compute=COMPUTE,
            memory=MEMORY,
        )
    return msg(
        "{compute:.0%} of the compute roof or {memory:.0%} of the memory roof",
        compute=COMPUTE,
        memory=MEMORY,
    )
