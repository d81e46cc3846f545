"""GPU schedule rules; `RULES` is the order in which they are offered a kernel."""

from __future__ import annotations

from tvmscope.compiler.manifest.names import unique
from tvmscope.compiler.schedules.cuda import (
    dlight,
    elements,
    gemm,
    generated,
    rows,
    steps,
    windows,
)

RULES = unique(
    (
        generated.RULE,
        steps.RULE,
        gemm.RULE,
        elements.RULE,
        windows.RULE,
        rows.RULE,
        *dlight.RULES,  # what ours refuse: other types, unknown shapes, sums of other orders
    ),
    __name__,
)
