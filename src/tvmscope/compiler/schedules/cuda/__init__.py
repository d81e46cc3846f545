"""GPU schedule rules; `RULES` is the order in which they are offered a kernel."""

from __future__ import annotations

from tvmscope.compiler.manifest.names import unique
from tvmscope.compiler.schedules.cuda import dlight, elements, gemm, generated

RULES = unique((generated.RULE, gemm.RULE, elements.RULE, *dlight.RULES), __name__)
