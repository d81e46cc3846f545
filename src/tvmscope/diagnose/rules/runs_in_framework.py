"""Operators without a kernel, which run in a framework, and their cost."""

from __future__ import annotations

from collections.abc import Iterator

from tvmscope.core.artifact import FALLBACK
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import Text, msg, sentences

MUCH = 0.2
"""The share of the time from which they matter more than other findings."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        found = [kernel for kernel in subject.kernels if kernel.name.startswith(FALLBACK)]
        if found:
            yield _finding(subject, found)


def _finding(subject: Subject, found: list[Kernel]) -> Finding:
    share = sum(kernel.share for kernel in found)
    return Finding(
        rule=RULE.id,
        severity="high" if share >= MUCH else "low",
        effort="hours",
        title=msg("Operators without a kernel run in the model's framework"),
        evidence=subject.says(
            sentences(
                msg(
                    "{operators} take {spent}.",
                    operators=listed(sources(found)),
                    spent=subject.spent(found),
                ),
                msg(
                    "They are not fused with their neighbours, and the artifact needs the "
                    "framework (ONNX Runtime or PyTorch) where it is loaded."
                ),
                _on_gpu(subject),
            )
        ),
        advice=msg("Replace them by operators with a kernel, or write a converter for them."),
        kernels=names(found),
        source_ops=sources(found),
    )


def _on_gpu(subject: Subject) -> Text | None:
    if subject.device != "cuda":
        return None
    if "copied" in subject.setting("fallback"):
        return msg(
            "They interrupt CUDA graphs, and the GPU waits while the CPU computes them and their "
            "inputs and results are copied."
        )
    return msg("They interrupt CUDA graphs.")


RULE = Rule(
    id="runs-in-framework",
    title=msg("Operators that run in a framework"),
    needs=("profiles",),
    check=check,
)
