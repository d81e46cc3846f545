"""Products of one input with several weights become one, where attention reads the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.join_projections import join_projections

    return join_projections()


PASS = Pass(
    name="join-projections",
    phase="layout",
    words=marked("Computes the queries, keys and values of attention with one product."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="join-projections"),),
)
