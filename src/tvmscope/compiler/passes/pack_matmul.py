"""Matrix products get their right operand in column panels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.pack_matmul import pack_matmul

    return pack_matmul(context.target, context.knobs)


PASS = Pass(
    name="pack-matmul",
    phase="layout",
    words=marked("Packs the right operand of every matrix product into column panels."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="packed-matmul"),),
    shows=Shows(kernels="matmul|dense|gemm", only_unscheduled=True),
)
