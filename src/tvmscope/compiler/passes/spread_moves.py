"""Moves with several readers are computed by each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.spread_moves import spread_moves

    return spread_moves()


PASS = Pass(
    name="spread-moves",
    phase="fuse",
    words=marked("Lets every kernel that reads a moved or cast value read its source."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="spread-moves"),),
)
