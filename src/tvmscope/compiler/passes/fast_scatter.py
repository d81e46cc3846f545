"""Scatters become kernels in which each element looks up its update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fast_scatter import fast_scatter

    return fast_scatter(context.target)


PASS = Pass(
    name="fast-scatter",
    phase="layout",
    words=marked(
        "Turns scatters into kernels in which each element of the result looks up its update."
    ),
    make=make,
    switches=(Switch(name="fast-scatter"),),
)
