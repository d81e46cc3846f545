"""The code is built for less than the machine has: narrower vectors, no multiply-add, an old GPU.

The estimate moves kernels that no memory roof holds back to the wider registers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from tvmscope.core.profile import Finding
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, subjects
from tvmscope.messages import _

_WORTH = ("avx", "avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "amx-tile", "neon", "sve")
"""Features that change how fast arithmetic goes, as LLVM names them."""
_GPUS = {"V100": 70, "T4": 75, "A100": 80, "A10": 86, "RTX 30": 86, "L4": 89, "RTX 40": 89,
         "H100": 90, "H200": 90, "GH200": 90, "B200": 100}  # fmt: skip
"""Compute capability by a part of the device's name."""


def check(session: Session) -> Iterator[Finding]:
    measured = {r.task.target for r in session.results if r.status in ("ok", "wrong")}
    for target in session.targets:
        if measured and target.label not in measured:
            continue  # built for another machine
        subject = next((s for s in subjects(session) if s.profile.target == target.label), None)
        yield from (
            _cpu(session, target, subject) if target.device == "cpu" else _gpu(session, target)
        )


def missing_features(session: Session, target: Target) -> list[str]:
    """What this CPU has and the code must not use."""
    here = session.environment.cpu_features if target.device == "cpu" else ()
    return [f for f in _WORTH if f in here and f not in target.features]


def _cpu(session: Session, target: Target, subject: Subject | None) -> Iterator[Finding]:
    missing = missing_features(session, target)
    if not missing:
        return
    wide = replace(target, features=(*target.features, *missing))
    gain = _gain(wide.vector_bits / target.vector_bits * (2 if "fma" in missing else 1))
    saving = None
    if subject is not None:
        saving = sum(_saved(subject, k, gain) for k in subject.heavy if k.time.flops)
    yield Finding(
        rule=RULE.id,
        severity="high" if subject is None else subject.severity(saving),
        effort="minutes",
        title=_("The target leaves CPU features unused"),
        evidence=_(
            "{target} is built without {missing}, which {cpu} has: vectors of {narrow} instead of "
            "{wide} bits. Estimated: hot kernels {gain:.1f} times as fast, not below the "
            "memory roof."
        ).format(
            target=target.label, missing=listed(missing, 6), cpu=session.environment.cpu,
            narrow=target.vector_bits, wide=wide.vector_bits, gain=gain,
        ),
        advice=_("Compile with --target cpu, which asks the CPU for its features and proves them."),
        kernels=() if subject is None else tuple(k.name for k in subject.heavy),
        saving_s=saving,
        fix={"target": "cpu"},
    )  # fmt: skip


def _gain(more: float) -> float:
    """What of `more` arithmetic per instruction becomes speed: loads and tails stay as they are.

    The square root is what convolutions show between 128 and 512 bits.
    """
    return math.sqrt(more)


def _saved(subject: Subject, kernel: Kernel, gain: float) -> float:
    """Only memory holds it back: the compute roof was measured with the same narrow registers."""
    memory_s = subject.limits.memory_s(kernel.time) or 0.0
    return max(0.0, kernel.total_s - max(kernel.total_s / gain, memory_s))


def _gpu(session: Session, target: Target) -> Iterator[Finding]:
    built = int("".join(re.findall(r"\d+", target.arch)) or 0)
    has = max(
        (c for name, c in _GPUS.items() if name in (session.environment.gpu or "")), default=0
    )
    if has // 10 <= built // 10:
        return
    yield Finding(
        rule=RULE.id,
        severity="high",
        effort="minutes",
        title=_("The code is built for an older GPU"),
        evidence=_("{target} on {gpu}, which is sm_{has}.").format(
            target=target.label, gpu=session.environment.gpu, has=has
        ),
        advice=_("Compile with --target cuda, which asks the GPU for its architecture."),
        fix={"target": "cuda"},
    )


RULE = Rule(
    id="target-feature-unused",
    title=_("Target lacks a feature of the machine"),
    needs=("targets",),
    check=check,
)
