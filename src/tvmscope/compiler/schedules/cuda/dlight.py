"""DLight's GPU schedules, in DLight's own order, each as a rule.

DLight's own driver lets a rule that raises end the compilation (its matmul rule does so on
EfficientNet's classifier); offered one by one, the next rule takes over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm import s_tir, tirx

_WORDS = {
    "Matmul": marked(
        "DLight's matrix product: tiles in shared memory, matrix units where there are any."
    ),
    "GEMV": marked("DLight's product of a matrix and a vector: a sum is spread over threads."),
    "Reduction": marked("DLight's reduction of rows: one block of threads for each."),
    "GeneralReduction": marked(
        "DLight's chains of reductions, such as softmax: a block of threads each."
    ),
    "Fallback": marked(
        "Kernels that no other rule takes: elements are distributed over blocks and threads."
    ),
}
_LAST = "Fallback"


def _schedule(name: str) -> Callable[[tirx.PrimFunc, Target], s_tir.Schedule | None]:
    def schedule(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        import tvm
        from tvm.s_tir import dlight

        rule: dlight.ScheduleRule = getattr(dlight.gpu, name)()
        space = rule.apply(func, tvm.target.Target.current(allow_none=False), False)
        return space[0] if isinstance(space, list) else space

    return schedule


def _rule(name: str, public: str) -> ScheduleRule:
    return ScheduleRule(
        name=public,
        devices=("cuda",),
        version=1,
        words=_WORDS[name],
        schedule=_schedule(name),
        # Without its fallback, kernels would be left without threads: nothing would run.
        switch=None if name == _LAST else Switch(name=f"{public}-schedule", alone=False),
        last_resort=name == _LAST,
    )


RULES = tuple(
    _rule(name, public)
    for name, public in (
        ("Matmul", "dlight-matmul"),
        ("GEMV", "dlight-gemv"),
        ("Reduction", "dlight-reduction"),
        ("GeneralReduction", "dlight-general-reduction"),
        (_LAST, "dlight-fallback"),
    )
)
