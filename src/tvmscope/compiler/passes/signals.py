"""Convolutions of signals become those of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.signals import signals

    return signals(depthwise=context.target.device == "cuda")


PASS = Pass(
    name="signals",
    phase="graph",
    words=marked("Computes convolutions of signals as those of images that are one pixel high."),
    make=make,
    ours=("cpu", "cuda"),
    switches=(Switch(name="signals"),),
)
