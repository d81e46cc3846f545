"""Every kernel is offered to the CPU schedule rules."""

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
    name="cpu-rules",
    phase="schedule",
    words=marked("Offers every kernel to the CPU schedule rules."),
    make=make,
    ours=("cpu",),
    finding="no-schedule",
)
