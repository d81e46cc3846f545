"""Constant factors per channel are multiplied into weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fold_scales import fold_scales

    return fold_scales(half=context.options.precision.is_half)


PASS = Pass(
    name="fold-scales",
    phase="graph",
    words=marked("Multiplies a constant factor per channel into the weights before it."),
    make=make,
    switches=(Switch(name="fold-scales"),),
)
