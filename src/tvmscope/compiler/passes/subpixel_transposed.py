"""Transposed convolutions become ordinary ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.subpixel_transposed import subpixel_transposed

    return subpixel_transposed(channels_last=context.target.device == "cuda")


PASS = Pass(
    name="subpixel-transposed",
    phase="layout",
    words=marked(
        "Turns transposed convolutions into ordinary ones without the zeros between inputs."
    ),
    make=make,
    ours=("cpu", "cuda"),
    switches=(Switch(name="subpixel-transposed"),),
    shows=Shows(kernels="conv2d_transpose", only_unscheduled=True),
)
