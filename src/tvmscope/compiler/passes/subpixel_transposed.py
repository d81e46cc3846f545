"""Transposed convolutions become ordinary ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.subpixel_transposed import subpixel_transposed

    return subpixel_transposed()


PASS = Pass(
    name="subpixel-transposed",
    phase="layout",
    words=marked(
        "Turns transposed convolutions into ordinary ones without the zeros between inputs."
    ),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="subpixel-transposed"),),
    shows=Shows(kernels="conv2d_transpose", only_unscheduled=True),
)
