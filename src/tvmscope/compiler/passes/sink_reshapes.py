"""Reshapes move after elementwise operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.sink_reshapes import sink_reshapes

    return sink_reshapes()


PASS = Pass(
    name="sink-reshapes",
    phase="tidy",
    words=marked(
        "Moves reshapes behind elementwise operators, which then fuse with the operator before."
    ),
    make=make,
    switches=(Switch(name="sink-reshapes"),),
)
