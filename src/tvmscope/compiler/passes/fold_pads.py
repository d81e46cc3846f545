"""A convolution does the zero padding that precedes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fold_pads import fold_pads

    return fold_pads()


PASS = Pass(
    name="fold-pads",
    phase="graph",
    words=marked("Lets a convolution do the zero padding that precedes it."),
    make=make,
    switches=(Switch(name="fold-pads"),),
)
