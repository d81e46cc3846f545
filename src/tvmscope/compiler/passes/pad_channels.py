"""Tensors between convolutions get channels for whole loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    import tvm

    from tvmscope.compiler.rewrites.cuda.pad_channels import pad_channels
    from tvmscope.compiler.units.choose import unavailable
    from tvmscope.cuda.gpus import gpu_with

    if unavailable(context.target):  # place-units says so
        return tvm.transform.Sequential([])
    return pad_channels(gpu_with(context.target.arch, context.target.attrs))


PASS = Pass(
    name="pad-channels",
    phase="layout",
    words=marked("Adds channels of zeros where convolutions would read a few bytes at a time."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="generated-kernels"),),
)
