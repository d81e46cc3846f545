"""The schedules that MetaSchedule found for the kernels of TVM's own pipeline are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import EVERYWHERE, NOWHERE, Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.schedules.apply import apply_schedules
    from tvmscope.runtime import tvm_compat

    if context.target.device == "cuda":
        tvm_compat.import_tensor_intrinsics()  # traces of GPU kernels refer to them by name
    return apply_schedules((), context.target, context.remarks, context.options.choices)


PASS = Pass(
    name="searched-schedules",
    phase="schedule",
    words=marked("Schedules the kernels of TVM's own pipeline as MetaSchedule found best."),
    make=make,
    ours=NOWHERE,
    searched=EVERYWHERE,
)
