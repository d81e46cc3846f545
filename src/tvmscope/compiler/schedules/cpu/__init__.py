"""CPU schedule rules, one file each; `RULES` is the order in which they are offered a kernel."""

from __future__ import annotations

from tvmscope.compiler.manifest.names import unique
from tvmscope.compiler.schedules.cpu import (
    attention,
    conv2d,
    depthwise,
    fallback,
    matmul,
    matmul_chunks,
    movement,
    norms,
    pooling,
    reduction,
    steps,
    winograd,
)

RULES = unique(
    (
        conv2d.RULE,
        depthwise.RULE,
        matmul_chunks.RULE,  # for some cores: before the rule for all
        matmul.RULE,
        winograd.RULE,
        attention.RULE,
        norms.RULE,
        pooling.RULE,
        reduction.RULE,
        movement.RULE,
        steps.RULE,
        fallback.RULE,
    ),
    __name__,
)
