"""Scatters write into a value that is not read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.write_in_place import write_in_place

    return write_in_place()


PASS = Pass(
    name="write-in-place",
    phase="fuse",
    words=marked("Lets scatters write their updates into a value that is not read again."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="write-in-place", needs=("fast-scatter",)),),
)
