"""Every kernel is offered to the GPU schedule rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    import tvm

    from tvmscope.compiler.rewrites.cuda.workspaces import workspaces_as_results
    from tvmscope.compiler.schedules.apply import schedule_module

    return tvm.transform.Sequential([schedule_module(context), workspaces_as_results()])


PASS = Pass(
    name="gpu-rules",
    phase="schedule",
    words=marked("Offers every kernel to the GPU schedule rules."),
    make=make,
    ours=("cuda",),
    finding="no-schedule",
)
