"""3x3 convolutions that run directly because Winograd is disabled.

The estimate scales the present time by the ratio of the compiler's cost estimates; the transformed
weights still have to be read from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tvmscope.analysis import winograd
from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.profile import KernelIR
from tvmscope.core.session import Session
from tvmscope.diagnose.rule import Rule
from tvmscope.diagnose.view import Kernel, Subject, listed, names, sources, subjects
from tvmscope.messages import msg

MUCH = 0.02
_WEIGHT, _IMAGE = 6, 5
"""Numbers of dimensions of blocked weights (O, I, 3, 3, i, o) and images (N, C, H, W, c)."""


def check(session: Session) -> Iterator[Finding]:
    for subject in subjects(session):
        if subject.setting("winograd") != "False" or subject.device != "cpu":
            continue
        savings = {k: _saved(subject, k) for k in subject.kernels}
        found = [k for k, saved in savings.items() if saved > 0]
        saving = sum(savings[k] for k in found)
        if saving >= MUCH * subject.run_s:
            yield _finding(subject, found, saving)


def _saved(subject: Subject, kernel: Kernel) -> float:
    shape = kernel.ir and _shape(kernel.ir)
    if not shape:
        return 0.0
    weights, *image = shape
    tile = winograd.best_tile(*image)
    ratio = winograd.cost(tile, *image) / winograd.direct(*image)
    more = 4.0 * weights * ((tile + 2) ** 2 / 9 - 1) * kernel.time.calls
    moved = replace(kernel.time, bytes=(kernel.time.bytes or 0.0) + more)
    memory = subject.limits.memory_s(moved) or 0.0
    return max(0.0, kernel.total_s - max(kernel.total_s * ratio, memory))


def _shape(ir: KernelIR) -> tuple[int, int, int, int] | None:
    """Return weights, and the result's batch, rows and columns, of a stride-1 3x3 convolution."""
    given = [b.shape for b in ir.buffers if b.scope == "global"]
    weights = [s for s in given if len(s) == _WEIGHT and s[2:4] == (3, 3)]
    if ir.rule != "conv2d" or not weights:
        return None
    weight = weights[0]
    images = [s for s in given if len(s) == _IMAGE and s[2] > 1]
    taken = [s for s in images if s[1] == weight[1]]
    made = [s for s in images if s[1] == weight[0]]
    if not taken or not made or made[-1][2] < taken[0][2] - 2:
        return None
    batch, _blocks, rows, columns, _block = made[-1]
    return prod(weight), batch, rows, columns


def _finding(subject: Subject, found: list[Kernel], saving: float) -> Finding:
    return Finding(
        rule=RULE.id,
        severity=subject.severity(saving),
        effort="minutes",
        title=msg("Winograd convolutions are switched off"),
        evidence=subject.says(
            msg(
                "{names} take {spent} as direct 3x3 convolutions of stride 1. Estimated: the "
                "ratio of the compiler's cost estimates for Winograd and for the direct "
                "convolution, not below the memory roof.",
                names=listed(names(found)),
                spent=subject.spent(found),
            )
        ),
        advice=msg("Allow Winograd, unless the last digits matter: it rounds differently."),
        kernels=names(found),
        source_ops=sources(found),
        saving_s=saving,
        fix={"winograd": True},
    )


RULE = Rule(
    id="winograd-off",
    title=msg("Direct 3x3 convolutions"),
    needs=("profiles", "kernel_ir"),
    check=check,
)
