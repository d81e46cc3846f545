"""Replaces operators after generated kernels that move no data by one reshape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.passes import collapse_views

    return collapse_views.make(context)


PASS = Pass(
    name="collapse-results",
    phase="layout",
    words=marked("Replaces moves of kernels' results that move nothing by one reshape."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="collapse-views"),),
)
