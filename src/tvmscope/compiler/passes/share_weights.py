"""A weight that is repeated for every matrix of a batch is used once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.share_weights import share_weights

    return share_weights()


PASS = Pass(
    name="share-weights",
    phase="graph",
    words=marked("Multiplies all matrices of a batch by one weight instead of by copies of it."),
    make=make,
    switches=(Switch(name="share-weights"),),
)
