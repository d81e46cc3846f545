"""Scatters that write nothing are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fast_scatter import drop_empty_scatters

    return drop_empty_scatters()


PASS = Pass(
    name="drop-empty-scatters",
    phase="graph",
    words=marked("Drops scatters that write nothing."),
    make=make,
    switches=(Switch(name="fast-scatter"),),
)
