"""Softmax and layer norm become kernels that keep a row in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.row_kernels import row_kernels

    return row_kernels()


PASS = Pass(
    name="row-kernels",
    phase="layout",
    words=marked("Computes softmax and layer norm with kernels that keep a row in the cache."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="row-kernels"),),
    shows=Shows(kernels="softmax|layer_norm", only_unscheduled=True),
)
