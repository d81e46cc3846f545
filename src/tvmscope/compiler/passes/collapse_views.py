"""Replaces operators that together move no data by one reshape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.collapse_views import collapse_views

    return collapse_views()


PASS = Pass(
    name="collapse-views",
    phase="layout",
    words=marked("Replaces permutations and reshapes that move nothing by one reshape."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="collapse-views"),),
)
