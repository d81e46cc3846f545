"""Every kernel is offered to the GPU schedule rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.schedules.apply import schedule_module

    return schedule_module(context)


PASS = Pass(
    name="gpu-rules",
    phase="schedule",
    words=marked("Offers every kernel to the GPU schedule rules."),
    make=make,
    ours=("cuda",),
    finding="no-schedule",
)
