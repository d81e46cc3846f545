"""A sum of convolutions of one input is one convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.join_branches import join_branches

    return join_branches(half=context.options.precision.is_half)


PASS = Pass(
    name="join-branches",
    phase="graph",
    words=marked("Computes a sum of convolutions of one input as one convolution."),
    make=make,
    switches=(Switch(name="join-branches"),),
)
