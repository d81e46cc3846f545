"""GPU schedule rules, in the order in which they are offered a function: DLight's, for now.

DLight's own driver lets a rule that raises end the compilation (its matmul rule does so on
EfficientNet's classifier); offered one by one, the next rule takes over.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from tvmscope.core.target import Target


def _adapt(rule: Any) -> Any:
    def schedule(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        space = rule.apply(func, tvm.target.Target.current(allow_none=False), False)
        return space[0] if isinstance(space, list) else space

    return schedule


RULES = (
    ("dlight-matmul", _adapt(dlight.gpu.Matmul())),
    ("dlight-gemv", _adapt(dlight.gpu.GEMV())),
    ("dlight-reduction", _adapt(dlight.gpu.Reduction())),
    ("dlight-general-reduction", _adapt(dlight.gpu.GeneralReduction())),
    ("dlight-fallback", _adapt(dlight.gpu.Fallback())),
)
