"""Biases and activations move before pixel shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.sink_shuffles import sink_shuffles

    return sink_shuffles()


PASS = Pass(
    name="sink-shuffles",
    phase="layout",
    words=marked(
        "Moves pixel shuffles behind biases and activations, which the convolution then computes."
    ),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="sink-reshapes"),),
)
