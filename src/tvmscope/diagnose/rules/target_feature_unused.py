"""The code is built for less than the machine has: narrower vectors, no multiply-add, an old GPU.

The estimate assumes for each kernel the time that another backend or the roofs show to be possible,
but gains no more than the arithmetic per instruction does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.core.target import Target
from tvmscope.diagnose import estimate
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Subject, listed, subjects
from tvmscope.messages import msg

_WORTH = ("avx", "avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "amx-tile", "neon", "sve")
"""Features that change the speed of arithmetic, by LLVM's names."""
_GPUS = {"V100": 70, "T4": 75, "A100": 80, "A10": 86, "RTX 30": 86, "L4": 89, "RTX 40": 89,
         "H100": 90, "H200": 90, "GH200": 90, "B200": 100}  # fmt: skip
"""Compute capabilities by a part of the device's name."""


def check(session: Session) -> Iterator[Finding]:
    measured = {r.task.target for r in session.results if r.status in ("ok", "wrong")}
    looked_at = subjects(session)
    for target in session.targets:
        if measured and target.label not in measured:
            continue  # built for another machine
        subject = next((s for s in looked_at if s.key.target == target.label), None)
        if subject is None and any(s.device == target.device for s in looked_at):
            continue  # a fix has replaced its row
        yield from (
            _cpu(session, target, subject) if target.device == "cpu" else _gpu(session, target)
        )


def missing_features(session: Session, target: Target) -> list[str]:
    """Return the features that this CPU has but the code must not use."""
    here = session.environment.cpu_features if target.device == "cpu" else ()
    return [f for f in _WORTH if f in here and f not in target.features]


def _cpu(session: Session, target: Target, subject: Subject | None) -> Iterator[Finding]:
    missing = missing_features(session, target)
    if not missing:
        return
    wide = replace(target, features=(*target.features, *missing))
    more = wide.vector_bits / target.vector_bits * (2 if "fma" in missing else 1)
    computing = [] if subject is None else [k for k in subject.heavy if k.time.flops]
    saving = None if subject is None else estimate.saved_s(subject, computing, most=more)
    yield Finding(
        rule=RULE.id,
        severity="high" if subject is None else subject.severity(saving),
        effort="minutes",
        title=msg("The target leaves CPU features unused"),
        evidence=msg(
            "{target} is built without {missing}, which {cpu} has: vectors of {narrow} instead of "
            "{wide} bits. Estimated: {basis}, at most {more:.0f} times as fast.",
            target=target.label,
            missing=listed(missing, 6),
            cpu=session.environment.cpu,
            narrow=target.vector_bits,
            wide=wide.vector_bits,
            more=more,
            basis=msg("faster") if subject is None else estimate.basis(subject),
        ),
        advice=msg("Compile with --target cpu, which detects the CPU's features and proves them."),
        kernels=() if subject is None else tuple(k.name for k in subject.heavy),
        saving_s=saving,
        fix={"target": "cpu"},
    )


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
        title=msg("The code is built for an older GPU"),
        evidence=msg(
            "{target} on {gpu}, which is sm_{has}.",
            target=target.label,
            gpu=session.environment.gpu or "",
            has=has,
        ),
        advice=msg("Compile with --target cuda, which detects the GPU's architecture."),
        fix={"target": "cuda"},
    )


RULE = Rule(
    id="target-feature-unused",
    title=msg("Target lacks a feature of the machine"),
    needs=("targets",),
    check=check,
)
