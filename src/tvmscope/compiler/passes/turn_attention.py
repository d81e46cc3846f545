"""Attention with the values on the left is written in the usual order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.turn_attention import turn_attention

    return turn_attention()


PASS = Pass(
    name="turn-attention",
    phase="graph",
    words=marked("Brings attention with the values on the left into the usual order."),
    make=make,
    switches=(Switch(name="turn-attention"),),
)
